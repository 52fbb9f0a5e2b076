"""Metrics of instruction following: the checks of seed 004, and expected answers."""
