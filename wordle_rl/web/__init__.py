"""The page to play beside a model and to watch it think: needs the extra `web`."""
