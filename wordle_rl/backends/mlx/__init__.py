"""The MLX backend: Apple silicon, and the CPU on Linux."""
