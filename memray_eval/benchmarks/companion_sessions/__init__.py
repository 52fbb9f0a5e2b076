"""Talks with a companion over several turns."""
