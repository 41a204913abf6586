"""Trains a model to play Wordle: python train.py [choice=option] [key=value] ...

python train.py --help lists the choices, --cfg job shows the composed config. Heavy imports happen
only once the config is known to be right.
"""

if __name__ == "__main__":
    from wordle_rl.runs.interrupts import begin

    begin()  # before anything slow is imported

    from wordle_rl.commands.composed import TRAIN, run_composed

    run_composed(TRAIN)
