"""NVIDIA's tools, and what they make: nvcc, ptxas, cubins, machine code, occupancy, schedules."""
