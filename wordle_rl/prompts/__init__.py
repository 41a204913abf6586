"""What a player reads, and how its answer is understood. Text only, no tokens."""
