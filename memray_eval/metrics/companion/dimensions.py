"""The seven metrics of a companion's reply: six dimensions of seed 002 and their weighted sum."""

from __future__ import annotations

from memray_eval.metrics.companion._judgment import METRIC_OF, OVERALL
from memray_eval.metrics.companion._metric import dimension_metric, overall_metric

# A dimension's title, the label of its value, and what it asks
_DIMENSIONS = {
    "appropriateness": (
        "APPROPRIATENESS",
        "Appropriateness",
        "Appropriateness: is the reply fit to be spoken, and right for the situation?",
    ),
    "conversational_quality": (
        "CONVERSATIONAL QUALITY",
        "Conversational Quality",
        "Conversational quality: is the reply natural, engaging speech?",
    ),
    "helpfulness": (
        "HELPFULNESS (COMPANION)",
        "Helpfulness",
        "Helpfulness of a companion: does the reply meet the need and do good?",
    ),
    "emotional_intelligence": (
        "EMOTIONAL INTELLIGENCE",
        "Emotional Intelligence",
        "Emotional intelligence: does the reply notice feelings and answer them?",
    ),
    "personalization_continuity": (
        "PERSONALIZATION & CONTINUITY",
        "Personalization",
        "Personalization and continuity: does it build on what is known and was said?",
    ),
    "trust_boundaries": (
        "TRUST & BOUNDARIES",
        "Trust",
        "Trust and boundaries: is the reply honest about itself, and no crutch?",
    ),
}


METRICS = {
    METRIC_OF[dimension]: dimension_metric(dimension, *words)
    for dimension, words in _DIMENSIONS.items()
} | {
    OVERALL: overall_metric(
        "OVERALL QUALITY (COMPANION)",
        "Quality",
        "Overall quality of a companion's reply: the weighted sum of the six other metrics of this "
        "family.",
        """\
0.15 appropriateness + 0.20 conversational quality + 0.20 helpfulness + 0.25 emotional intelligence
+ 0.10 personalization + 0.10 trust, computed by us from the judgment's six figures:
a judge's own overall score is kept beside it.""",
    )
}
