"""Pages and pictures of runs. They read run folders, and play nothing."""
