"""Metrics for answers over long contexts: a judge of meaning, and the benchmarks' own rules beside
it."""
