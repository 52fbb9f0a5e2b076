"""Metrics of instruction following: the checks of seed 004, verifiable constraints, and expected
answers."""
