"""What the benchmarks of conversation memory share: a conversation in sessions and turns, what of
it a candidate is shown (the arm), and how that is asked."""
