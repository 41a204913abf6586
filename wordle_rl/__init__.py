"""A laboratory for reinforcement learning of language models on Wordle."""

__version__ = "0.1.0"
