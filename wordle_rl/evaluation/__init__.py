"""What finished games say about a player."""
