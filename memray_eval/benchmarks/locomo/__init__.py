"""LoCoMo: questions on ten long conversations between two people."""
