"""What a user starts; wordle_rl/__main__.py lists the commands."""
