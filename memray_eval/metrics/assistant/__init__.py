"""Metrics of an assistant that remembers its user (seed 000)."""
