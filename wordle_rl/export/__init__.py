"""Exports of a run's model for peft, transformers and mlx-lm, each scored before it gets a name."""
