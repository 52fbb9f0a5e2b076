"""Metrics of the companion suite (seed 002)."""
