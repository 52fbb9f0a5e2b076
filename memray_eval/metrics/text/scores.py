"""The text scores that hang on the response alone, and their weighted sum, each with its
formula."""

from __future__ import annotations

from dataclasses import replace

from memray_eval.metric import ComputedMetric
from memray_eval.metrics.text._features import (
    ANY_LANGUAGE,
    coherence_metric,
    expected_line,
    overall,
    quality_metric,
)

_METRICS = {
    "coherence_score": coherence_metric(),
    "completeness_score": quality_metric("completeness_score", "TEXT COMPLETENESS", "Completeness"),
    "lexical_diversity": quality_metric("lexical_diversity", "LEXICAL DIVERSITY", "Diversity"),
    "overall_score": overall(),
    "readability_score": quality_metric("readability_score", "READABILITY", "Readability"),
    "structure_score": quality_metric("structure_score", "TEXT STRUCTURE", "Structure"),
}
_FORMULAS = {
    "coherence_score": """How well ideas connect, 0-1.

0.6 x transitions a sentence (at most 1) + 0.4 x (1 - penalty). The penalty for repetition is 0.1 x
(occurrences of the most frequent trigram - 1), at most 0.5. A response without a word: 0.0.

Transitions are eleven words; with `transitions: extended` in the config also those that
its list leaves out ("additionally", "for example", "first" at the beginning of a sentence;
_features.py lists them).""",
    "completeness_score": """Whether the response is finished, 0-1.

0.4 for an ending in .!? or a closing quote; 0.3 for three sentences or more, 0.2 for two; 0.2 for
"in conclusion", "finally", "to summarize" or "in summary"; 0.1 for ten words a sentence or more;
less 0.1 for an ending in , . ; or : (a full stop thus earns 0.3, and the most that a text with one
can have is 0.9). At least 0. A response without a word: 0.0.""",
    "lexical_diversity": """How varied the words are, 0-1.

Different words / words. Above 100 words the mean of that ratio over windows of 50 words that start
every 25 words, while a window's end is before the text's. A response without a word: 0.0.""",
    "overall_score": """The weighted sum of the six text scores, 0-1.

0.25 coherence_score + 0.25 completeness_score + 0.15 lexical_diversity + 0.15 structure_score +
0.10 readability_score + 0.10 length_appropriateness; `text_weights` in the config has other
weights, also by task. A response without a word: 0.0.""",
    "readability_score": """How easy the response is to read, 0-1.

0.6 x (1 - min(|words a sentence - 17.5| / 17.5, 1)) + 0.4 x (1 - min(|characters a word - 5| / 5,
1)). A response without a word: 0.0.""",
    "structure_score": """How well the response is laid out, 0-1.

0.3 for three paragraphs or more, 0.2 for two; 0.3 for a numbered or bullet list; 0.2 for sentence
lengths whose standard deviation is more than 5 words, 0.1 for more than 3; 0.2 for a header. A
response without a word: 0.0.""",
}


def _describe(name: str, metric: ComputedMetric) -> ComputedMetric:
    known = "all with spaces between words" if name in ANY_LANGUAGE else "English"
    of_languages = f"Languages: {known}; others are not measured."
    texts = filter(None, (_FORMULAS[name], of_languages, expected_line(name)))
    return replace(metric, about="\n\n".join(texts))


METRICS = {name: _describe(name, metric) for name, metric in _METRICS.items()}
