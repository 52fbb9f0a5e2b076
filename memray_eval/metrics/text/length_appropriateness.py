"""Whether the response has a fitting length, 0-1.

With n words: 75 to 300: 1; 50 to 75: 0.7 + 0.3 (n - 50) / 25; 25 to 50: 0.4 + 0.3 (n - 25) / 25;
below 25: 0.4 n / 25, at least 0.1; 300 to 500: 1 - 0.3 (n - 300) / 200; above: 0.7 - 0.5 (n - 500)
/ 500, at least 0.2. A response without a word: 0.0.

A sample's metadata.target_words = [low, high] takes the place of 75 and 300, and
metadata.length_from_prompt = true takes them from the query ("exactly 50 words", "in about 200
words", "in 100 to 150 words"): n is then n x 75 / low below the target and n x 300 / high above it.

Languages: all with spaces between words; others are not measured. It is expected by temperature,
says its source: 0.85-1.00 at 0.3, 0.75-0.95 at 0.7, 0.65-0.90 at 1.2.
"""

from __future__ import annotations

from memray_eval.metric import ComputedMetric, MetricValue
from memray_eval.metrics.text._features import assess_language, length_score, length_target
from memray_eval.types import Response, Sample


def measure(sample: Sample, response: Response) -> MetricValue:
    """Raises ValueError for a target_words that is no range of words."""
    words = assess_language(response.text, english=False).words
    return MetricValue(value=length_score(words, length_target(sample)))


METRIC = ComputedMetric(
    title="LENGTH APPROPRIATENESS", value_label="Appropriateness", scale=(0, 1), measure=measure
)
