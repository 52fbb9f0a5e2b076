"""All long-context benchmarks in one run, asked and scored as their own."""
