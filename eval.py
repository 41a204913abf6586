"""Plays full games and reports them: python eval.py run=outputs/<run> | model=... | player=...

Prints tables beside the solvers on the same words. With json=true the last line is summary.json's
content.
"""

if __name__ == "__main__":
    from wordle_rl.runs.interrupts import begin

    begin()  # before anything slow is imported

    from wordle_rl.commands.composed import EVAL, run_composed

    run_composed(EVAL)
