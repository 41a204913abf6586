"""One training step, the loop around it, validation and curricula."""
