"""Trains a model to play Wordle: python train.py [choice=option] [key=value] ...

python train.py --help lists the choices, --cfg job shows the composed config. Heavy imports happen
only once the config is known to be right.
"""

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin()

    from wordle_rl.runs.errors import whole_command

    with whole_command():
        from wordle_rl.commands.composed import train

        train()
