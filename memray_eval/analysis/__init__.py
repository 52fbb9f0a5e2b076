"""Computes what a run's records say: summaries, statistics, differences. No rendering, no Ray."""
