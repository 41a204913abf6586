"""Words and a style for tests of scripted players."""

from wordle_rl.game.feedback_table import build_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.prompts.styles import Symbols
from wordle_rl.words.lists import WordLists, load_words

ANSWERS = load_words().answers[::8]
WORDS = WordLists(answers=ANSWERS, allowed=tuple(sorted({*ANSWERS, "eerie", "mammy"})), name="some")
KNOWLEDGE = Knowledge(WORDS, build_table(WORDS))
STYLE = Symbols(think=True)
