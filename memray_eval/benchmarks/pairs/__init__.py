"""Pairs of answers to the same question."""
