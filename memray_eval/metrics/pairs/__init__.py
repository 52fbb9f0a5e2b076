"""Metrics of pairs: which of two answers is better."""
