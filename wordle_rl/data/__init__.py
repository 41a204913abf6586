"""Files to train on: rows in, rows out. docs/DATA.md describes the columns."""
