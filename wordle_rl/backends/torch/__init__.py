"""The Lightning backend: PyTorch on CPU, CUDA and MPS."""
