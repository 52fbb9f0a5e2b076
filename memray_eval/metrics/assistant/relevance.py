"""Relevance: the cosine of the query's and the response's embeddings, negative ones counted as 0.
Source: seed 000, metric 3.

It says whether the response speaks of what was asked, not whether it is right. An empty response is
not relevant: 0.0."""

from memray_eval.metric import EmbeddedMetric, MetricValue
from memray_eval.ports import Vectors
from memray_eval.types import Response, Sample


def texts(sample: Sample, response: Response) -> tuple[str, str]:
    return sample.query, response.text


def measure(sample: Sample, response: Response, vectors: Vectors) -> MetricValue:
    """cos(query, response) clipped to 0-1; `cosine` keeps the raw one."""
    cosine = float(vectors[sample.query] @ vectors[response.text])
    return MetricValue(value=min(1.0, max(0.0, cosine)), parts={"cosine": cosine})


METRIC = EmbeddedMetric(
    title="RESPONSE RELEVANCE (EMBEDDING SIMILARITY)",
    value_label="Relevance",
    scale=(0, 1),
    texts=texts,
    measure=measure,
    on_empty=MetricValue(value=0.0, parts={"cosine": 0.0}),
    parts=("cosine",),
)
