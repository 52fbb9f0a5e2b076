"""The shared parts of the benchmarks of conversation memory: a conversation in sessions and turns,
what of it a candidate is shown (the arm), and how that is asked."""
