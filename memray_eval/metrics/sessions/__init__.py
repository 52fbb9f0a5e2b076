"""Metrics of what a companion does over the turns of a session."""
