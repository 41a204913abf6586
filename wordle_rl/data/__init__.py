"""Files of states and dialogues (`data=`): what their columns mean, and which rows can be used.

wordle_rl.runs.tables reads the files. docs/DATA.md describes the columns.
"""
