"""The word lists, and how their secrets are split."""
