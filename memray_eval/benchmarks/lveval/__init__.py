"""LV-Eval: questions on long texts with confusing facts, at five lengths."""
