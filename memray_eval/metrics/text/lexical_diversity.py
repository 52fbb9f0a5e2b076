"""How varied the words are, 0-1.

Different words / words. Above 100 words the mean of that ratio over windows of 50 words that start
every 25 words, while a window's end is before the text's. A response without a word: 0.0."""

from __future__ import annotations

from memray_eval.metrics.text._features import quality_metric

METRIC = quality_metric("lexical_diversity", "LEXICAL DIVERSITY", "Diversity")
