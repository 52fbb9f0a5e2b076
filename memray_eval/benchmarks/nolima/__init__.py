"""NoLiMa: a needle that shares no words with the question about it."""
