"""Text quality without a judge: the text scores as plain formulas, and their weighted sum, and the
coherence of sentences by embeddings. What a word, a sentence and an empty response are is in
_text_features.py."""

from dataclasses import replace
from itertools import pairwise
from statistics import fmean

from memray_eval.metric import (
    ComputedMetric,
    EmbeddedMetric,
    Metric,
    MetricValue,
    NothingToScoreError,
)
from memray_eval.metrics._text_features import (
    ANY_LANGUAGE,
    coherence_metric,
    expected_line,
    length_score,
    length_target,
    overall,
    quality_metric,
    read_language,
    sentences_of,
)
from memray_eval.ports import Vectors
from memray_eval.types import Response, Sample

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
_text_features.py lists them).""",
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


def measure_length(sample: Sample, response: Response) -> MetricValue:
    words = read_language(response.text, english=False).words
    return MetricValue(value=length_score(words, length_target(sample)))


_MOST_COMPARED = 100  # sentences


def sentences_to_embed(sample: Sample, response: Response) -> tuple[str, ...]:
    """The sentences; none of a response that has fewer than two."""
    if not (text := response.text.strip()):
        return ()
    sentences = [" ".join(words) for words in sentences_of(text)[:_MOST_COMPARED]]
    return tuple(sentences) if len(sentences) > 1 else ()


def measure_neighbours(sample: Sample, response: Response, vectors: Vectors) -> MetricValue:
    """Raises NothingToScoreError for a response of one sentence."""
    if not (sentences := sentences_to_embed(sample, response)):
        raise NothingToScoreError("it has one sentence, and so no neighbours to compare")
    cosines = (float(vectors[first] @ vectors[second]) for first, second in pairwise(sentences))
    return MetricValue(value=fmean(min(1.0, max(0.0, cosine)) for cosine in cosines))


METRICS = dict[str, Metric]()
for _name, _formula in _FORMULAS.items():
    _scope = "all with spaces between words" if _name in ANY_LANGUAGE else "English"
    _languages = f"Languages: {_scope}; others are not measured."
    _about = "\n\n".join(filter(None, (_formula, _languages, expected_line(_name))))
    METRICS[_name] = replace(_METRICS[_name], about=_about)
METRICS["length_appropriateness"] = ComputedMetric(
    title="LENGTH APPROPRIATENESS",
    value_label="Appropriateness",
    scale=(0, 1),
    measure=measure_length,
    about="""\
Whether the response has a fitting length, 0-1.

With n words: 75 to 300: 1; 50 to 75: 0.7 + 0.3 (n - 50) / 25; 25 to 50: 0.4 + 0.3 (n - 25) / 25;
below 25: 0.4 n / 25, at least 0.1; 300 to 500: 1 - 0.3 (n - 300) / 200; above: 0.7 - 0.5 (n - 500)
/ 500, at least 0.2. A response without a word: 0.0.

A sample's metadata.target_words = [low, high] takes the place of 75 and 300, and
metadata.length_from_prompt = true takes them from the query ("exactly 50 words", "in about 200
words", "in 100 to 150 words"): n is then n x 75 / low below the target and n x 300 / high above it.

Languages: all with spaces between words; others are not measured. It is expected by temperature,
says its source: 0.85-1.00 at 0.3, 0.75-0.95 at 0.7, 0.65-0.90 at 1.2.

Raises ValueError for a target_words that is no range of words.""",
)
METRICS["semantic_coherence"] = EmbeddedMetric(
    title="SEMANTIC COHERENCE (EMBEDDING SIMILARITY)",
    value_label="Coherence",
    scale=(0, 1),
    texts=sentences_to_embed,
    measure=measure_neighbours,
    on_empty=MetricValue(value=0.0),
    about="""\
Whether each sentence goes on from the one before, by meaning, 0-1.

The mean of the cosines of neighbouring sentences' embeddings, negative ones counted as 0; of the
first 100 sentences. A response of one sentence is not applicable, an empty one 0.0.

Languages: those of the run's embedding model; the local one knows English. It is in no weighted
sum, and knows no right order: sentences that say the same again score high.

Raises NothingToScoreError for a response of one sentence.""",
)
