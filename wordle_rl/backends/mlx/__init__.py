"""backend=mlx: Apple silicon, and the CPU on Linux. The files are named as those of torch/."""
