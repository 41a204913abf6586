"""Training algorithms: how rewards become advantages, weights and a loss. One file each."""
