"""`python -m memray_eval`: the same as the command `memray-eval`."""

from memray_eval.cli import program

program()
