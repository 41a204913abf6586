"""play.py without a page: reads guesses and commands from a stream of lines, prints boards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from wordle_rl.evaluation.boards import boards_side_by_side
from wordle_rl.evaluation.turn_facts import TurnFacts
from wordle_rl.game.rules import Clue, PlayedTurn, State, marks_of
from wordle_rl.policy.engine import NotFinite
from wordle_rl.rollouts.likeliest_words import WordChances
from wordle_rl.rollouts.opponent import Opponent
from wordle_rl.runs.untrusted import printable
from wordle_rl.web.fields import code_of
from wordle_rl.web.lobby import Lobby
from wordle_rl.web.match import Match, new_match, pick_secret
from wordle_rl.web.shown import NOTES
from wordle_rl.words.lists import WORD_LENGTH

HELP = """\
Type a word of five letters to guess it. Everything else begins with a slash:

/hint                     what would the player guess on your board?
/watch [WORD]             watch the player think, on a secret of yours or by chance
/board WORD MARKS ...     on this board? Marks: x absent, - elsewhere, v in place
/new [WORD]               a new game, on a secret of yours or by chance
/players                  the players that there are
/against NAME             another player, and a new game
/help, /quit"""
_TILES = {"✓": "30;42", "-": "30;43", "x": "97;100"}  # mark -> ANSI colours: green, yellow, grey
_NO_LETTER = "·"
_LONGEST = 200  # characters of an answer without a guess
_WORDS = 5  # likeliest words of a turn


class TerminalTable:
    """One person, one player, one terminal."""

    def __init__(self, lobby: Lobby, colour: bool, secret: str | None = None) -> None:
        """Loads the first player. Raises ValueError when it or the secret cannot be used."""
        self._lobby, self._colour = lobby, colour
        self._opponent: Opponent = lobby.get(lobby.first)
        self._match: Match = self._begin(secret)
        self._commands: dict[str, Callable[[Sequence[str]], None]] = {
            "/hint": self._hint, "/watch": self._watch, "/board": self._board, "/new": self._new,
            "/players": self._list, "/against": self._against, "/help": lambda _: print(HELP),
        }  # fmt: skip

    def run(self, lines: Iterable[str]) -> None:
        """Play until /quit or the last line."""
        print(f"You play against {self._opponent.name}. /help lists the commands.")
        self._prompt()
        for line in lines:
            words = line.split()
            if words and words[0] == "/quit":
                return
            if words:
                try:
                    self._obey(words)
                except (ValueError, NotFinite, OSError) as error:
                    print(printable(" ".join(str(error).split())))
            self._prompt()
        print()

    def _prompt(self) -> None:
        game = self._match.mine
        if self._match.over:
            print("/new for another game> ", end="", flush=True)
        else:
            print(f"guess {game.state.turn + 1} of {game.rules.max_turns}> ", end="", flush=True)

    def _obey(self, words: Sequence[str]) -> None:
        name = words[0].lower()
        if name.startswith("/"):
            if name not in self._commands:
                raise ValueError(f"there is no command {name[:20]}: /help lists them")
            self._commands[name](words[1:])
        elif len(words) == 1 and len(name) == WORD_LENGTH and name.isascii() and name.isalpha():
            self._guess(name)
        else:
            raise ValueError("a guess is one word of five letters, and /help lists the commands")

    def _guess(self, word: str) -> None:
        match = self._match
        turn = match.guess(word)
        print(f"you   {self._row(turn)}")
        if match.over:
            print(self._ending())
        elif len(match.shown) == len(match.mine.turns):
            print(f"they  {self._row(match.shown[-1], hidden=True)}")

    def _ending(self) -> str:
        """Both boards, and who was better."""
        mine, theirs = self._match.mine, self._match.theirs.game
        boards = boards_side_by_side([mine, theirs], colour=self._colour)
        lost = mine.rules.max_turns + 1
        yours, others = (g.state.turn if g.won else lost for g in (mine, theirs))
        verdict = "a draw" if yours == others else "you win" if yours < others else "they win"
        return f"\nyou, then {self._opponent.name}: {verdict}\n\n{boards}\n"

    def _hint(self, _: Sequence[str]) -> None:
        empty = State(max_turns=self._opponent.rules.max_turns)
        self._answer_on(empty if self._match.over else self._match.mine.state)

    def _board(self, words: Sequence[str]) -> None:
        most = self._opponent.rules.max_turns
        if len(words) % 2 or len(words) // 2 >= most:
            raise ValueError(f"/board takes pairs of a word and its marks, at most {most - 1}")
        clues = []
        for word, marks in zip(words[::2], words[1::2], strict=True):
            code = code_of(marks)
            if len(word) != WORD_LENGTH or not (word.isascii() and word.isalpha()) or code is None:
                raise ValueError(f"not a word and five marks of x, - and v: {word} {marks}")
            clues.append(Clue(word.lower(), code))
        self._answer_on(State(tuple(clues), len(clues), most))

    def _answer_on(self, state: State) -> None:
        asked = self._opponent.ask(state)
        facts = self._lobby.judge(self._opponent).judge(state, asked.guess)
        if asked.guess is None:
            answer = printable(" ".join(asked.reply.text.split()))[:_LONGEST]
            print(f"{self._opponent.name} makes no guess ({asked.reason}): {answer}")
        else:
            print(f"{self._opponent.name} guesses {asked.guess.upper()}")
        print(describe_facts(facts))
        if asked.chances is not None:
            print(describe_chances(asked.chances))

    def _watch(self, words: Sequence[str]) -> None:
        opponent = self._opponent
        watched = opponent.play(pick_secret(opponent, words[0].lower() if words else None))
        reward, judge = opponent.rewards.score(watched.game), self._lobby.judge(opponent)
        for number, turn in enumerate(watched.game.turns):
            print(f"\n{number + 1}  {self._row(turn)}")
            print(describe_facts(judge.judge(turn.state, turn.guess)))
            shares = reward.turns[number].items()
            parts = ", ".join(f"{name} {share:+.2f}" for name, share in shares)
            print(f"   reward {reward.turn_totals[number]:+.2f}: {parts}")
            chances = opponent.chances(watched, number)
            if chances is not None:
                print(describe_chances(chances))
        result = "found" if watched.game.won else "did not find"
        print(f"\n{opponent.name} {result} {watched.game.secret.upper()}\n")

    def _new(self, words: Sequence[str]) -> None:
        self._match = self._begin(words[0].lower() if words else None)

    def _list(self, _: Sequence[str]) -> None:
        for choice in self._lobby.choices.values():
            print(f"{choice.key:<26} {choice.label}")

    def _against(self, words: Sequence[str]) -> None:
        if len(words) != 1 or words[0] not in self._lobby.choices:
            raise ValueError("/against takes one of the names that /players lists")
        self._opponent = self._lobby.get(words[0])
        self._match = self._begin(None)
        print(f"You play against {self._opponent.name}.")

    def _begin(self, secret: str | None) -> Match:
        return new_match(self._opponent, pick_secret(self._opponent, secret), lambda: False)

    def _row(self, turn: PlayedTurn, *, hidden: bool = False) -> str:
        """The letters and marks of a turn. hidden: the marks alone."""
        letters = _NO_LETTER * WORD_LENGTH if hidden or turn.guess is None else turn.guess.upper()
        if turn.feedback is None:
            return f"{letters} {NOTES[turn.kind]}"
        marks = marks_of(turn.feedback)
        if not self._colour:
            return f"{letters} {marks}"
        tiles = zip(marks, letters, strict=True)
        return "".join(f"\x1b[{_TILES[mark]}m {letter} \x1b[0m" for mark, letter in tiles)


def describe_facts(facts: TurnFacts) -> str:
    """One line: the words left, the bits of the guess, and the best guess."""
    left = f"{facts.candidates} words left" if facts.candidates != 1 else "1 word left"
    line = f"   {left}"
    if facts.candidates == 0:
        return f"{line}: no answer fits these clues"
    if facts.bits is not None:
        line += f", {facts.bits:.2f} bits" + ("" if facts.fits else ", ignores a clue")
    return f"{line}; best {(facts.best or '').upper()} {facts.best_bits:.2f} bits"


def describe_chances(chances: WordChances) -> str:
    """One line: the likeliest words in percent."""
    likeliest = list(chances.words.items())[:_WORDS]
    words = ", ".join(f"{word} {_percent(chance)}" for word, chance in likeliest)
    return f"   likeliest: {words or 'no allowed word'}"


def _percent(share: float) -> str:
    """0.1234 as 12.3 %, and 0.000123 as 0.012 %."""
    return f"{100 * share:.1f} %" if share >= 0.01 else f"{100 * share:.2g} %"
