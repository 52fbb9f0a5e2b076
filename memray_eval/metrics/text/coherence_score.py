"""How well ideas connect, 0-1.

0.6 x transitions a sentence (at most 1) + 0.4 x (1 - penalty). The penalty for repetition is 0.1 x
(occurrences of the most frequent trigram - 1), at most 0.5. A response without a word: 0.0.

Transitions are eleven words; with `transitions: extended` in the config also those that
its list leaves out ("additionally", "for example", "first" at the beginning of a sentence;
_features.py lists them)."""

from __future__ import annotations

from memray_eval.metrics.text._features import coherence_metric

METRIC = coherence_metric()
