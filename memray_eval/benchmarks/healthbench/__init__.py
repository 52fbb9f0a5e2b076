"""HealthBench: health conversations, each with criteria of its own for the answer."""
