"""Ways to compute faster on a CPU. Each has a plain way behind it and is equal to it by test."""
