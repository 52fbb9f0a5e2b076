"""Metrics of benchmarks of conversation memory."""
