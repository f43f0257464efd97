"""Programs after NVIDIA's CUDA samples: same algorithms and kernel structure, written anew."""
