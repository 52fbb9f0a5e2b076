"""The weighted sum of the six text scores, 0-1.

0.25 coherence_score + 0.25 completeness_score + 0.15 lexical_diversity + 0.15 structure_score +
0.10 readability_score + 0.10 length_appropriateness; `overall(weights)` makes it with other
weights. A response without a word: 0.0."""

from __future__ import annotations

from memray_eval.metrics.text._features import overall

METRIC = overall()
