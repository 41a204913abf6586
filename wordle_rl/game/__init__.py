"""Rules, feedback, what the clues say, and the scripted players."""
