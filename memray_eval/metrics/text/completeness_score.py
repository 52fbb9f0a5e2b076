"""Whether the response is finished, 0-1.

0.4 for an ending in .!? or a closing quote; 0.3 for three sentences or more, 0.2 for two; 0.2 for
"in conclusion", "finally", "to summarize" or "in summary"; 0.1 for ten words a sentence or more;
less 0.1 for an ending in , . ; or : (a full stop thus earns 0.3, and the most that a text with one
can have is 0.9). At least 0. A response without a word: 0.0."""

from __future__ import annotations

from memray_eval.metrics.text._features import quality_metric

METRIC = quality_metric("completeness_score", "TEXT COMPLETENESS", "Completeness")
