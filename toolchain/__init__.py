"""NVIDIA's command-line tools and their output: nvcc, ptxas, cubins, machine code, occupancy, schedules."""
