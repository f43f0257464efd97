"""Programs with the algorithms and the kernel structure of NVIDIA's CUDA samples, written from scratch."""
