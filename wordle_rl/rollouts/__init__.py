"""Games as tokens: a policy or a teacher plays, and conversations are kept for training."""
