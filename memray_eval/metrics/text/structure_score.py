"""How well the response is laid out, 0-1.

0.3 for three paragraphs or more, 0.2 for two; 0.3 for a numbered or bullet list; 0.2 for sentence
lengths whose standard deviation is more than 5 words, 0.1 for more than 3; 0.2 for a header. A
response without a word: 0.0."""

from __future__ import annotations

from memray_eval.metrics.text._features import quality_metric

METRIC = quality_metric("structure_score", "TEXT STRUCTURE", "Structure")
