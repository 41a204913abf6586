"""What a player is told, and how its answer is read."""
