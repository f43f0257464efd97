"""Python in, CUDA C++ out; host programs as a graph of launches. Sees `ptx` only."""
