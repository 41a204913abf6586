"""What the laboratory asks of a model, in plain Python and numpy. Each backend implements it."""
