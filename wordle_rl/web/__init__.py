"""The page to watch a model think and to play beside it."""
