"""The only place that imports torch, lightning, transformers, peft or mlx; itself imported late."""
