"""All long-context benchmarks in one run: each row is asked and scored as its own benchmark
does."""
