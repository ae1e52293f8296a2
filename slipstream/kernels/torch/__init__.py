"""Float32 kernels in PyTorch: they run anywhere, and are the reference for faster ones."""
