"""Text quality as plain formulas, without a judge: what a word, a sentence and an empty response
are stands in _features.py."""
