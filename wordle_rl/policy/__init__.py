"""What the laboratory asks of a model; each backend implements it."""
