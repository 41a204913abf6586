"""A laboratory for reinforcement learning of language models on Wordle, a game whose optimum is known."""

__version__ = "0.1.0"
