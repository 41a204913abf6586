"""Curricula decide what a run learns when. One per file, chosen as curriculum=<name>.

They look at games and weigh rewards. They know nothing of tokens.
"""
