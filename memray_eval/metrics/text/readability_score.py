"""How easy the response is to read, 0-1.

0.6 x (1 - min(|words a sentence - 17.5| / 17.5, 1)) + 0.4 x (1 - min(|characters a word - 5| / 5,
1)). A response without a word: 0.0."""

from __future__ import annotations

from memray_eval.metrics.text._features import quality_metric

METRIC = quality_metric("readability_score", "READABILITY", "Readability")
