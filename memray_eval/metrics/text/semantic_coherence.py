"""Whether each sentence goes on from the one before, by meaning, 0-1.

The mean of the cosines of neighbouring sentences' embeddings, negative ones counted as 0; of the
first 100 sentences. A response of one sentence is not applicable, an empty one 0.0.

Languages: those of the run's embedding model; the local one knows English. It is in no weighted
sum, and knows no right order: sentences that say the same again score high."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean

from memray_eval.metric import EmbeddedMetric, MetricValue, NothingToScoreError
from memray_eval.metrics.text._features import sentences_of
from memray_eval.ports import Vectors
from memray_eval.types import Response, Sample

MOST = 100  # sentences


def texts(sample: Sample, response: Response) -> tuple[str, ...]:
    """The sentences; none of a response that has fewer than two."""
    if not (text := response.text.strip()):
        return ()
    sentences = [" ".join(words) for words in sentences_of(text)[:MOST]]
    return tuple(sentences) if len(sentences) > 1 else ()


def measure(sample: Sample, response: Response, vectors: Vectors) -> MetricValue:
    """Raises NothingToScoreError for a response of one sentence."""
    if not (sentences := texts(sample, response)):
        raise NothingToScoreError("it has one sentence, and so no neighbours to compare")
    cosines = (float(vectors[first] @ vectors[second]) for first, second in pairwise(sentences))
    return MetricValue(value=fmean(min(1.0, max(0.0, cosine)) for cosine in cosines))


METRIC = EmbeddedMetric(
    title="SEMANTIC COHERENCE (EMBEDDING SIMILARITY)",
    value_label="Coherence",
    scale=(0, 1),
    texts=texts,
    measure=measure,
    on_empty=MetricValue(value=0.0),
)
