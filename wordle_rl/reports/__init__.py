"""Pages and pictures of runs and studies. They read run folders, and play nothing.

Commands call these modules; no other folder imports them.
"""
