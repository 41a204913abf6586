"""The page to play and to watch: the only folder that knows a web framework.

`app.py`, `guard.py` and `server.py` need the extra `web`. The other files do not, so that a
terminal can use the same players, games and run folders.
"""
