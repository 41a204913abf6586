"""What a user starts; each module with a function of its own name is a command of wordle-rl."""
