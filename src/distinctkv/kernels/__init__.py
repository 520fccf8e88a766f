"""Triton kernels: one operation a file, each with a torch reference in `nn` or `hf`."""
