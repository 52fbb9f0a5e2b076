"""Metrics by criteria that each sample brings."""
