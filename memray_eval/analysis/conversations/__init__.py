"""Reports of benchmarks of conversation memory: what failed where, by arm, and what it took."""
