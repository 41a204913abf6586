"""Curricula: what a run learns when. One per file, chosen as curriculum=<name>.

They judge games and weigh rewards, and know nothing of tokens.
"""
