"""Tables of the models that answered under one name, with the figures of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memray_eval.analysis.marks import NOTHING
from memray_eval.analysis.served_models import split_names
from memray_eval.report.sections import Section, Table
from memray_eval.types import ServedModel


def served_sections(served: Sequence[ServedModel]) -> Iterator[Section]:
    """A section for each candidate and judge that answered as several models: a column a model, a
    row a metric with its means."""
    for models in split_names(served):
        metrics = sorted({metric for model in models for metric in model.means})
        rows = [
            ("mean", *(model.model for model in models)),
            ("n", *(f"{model.n:,}" for model in models)),
        ]
        rows += [
            (metric, *(f"{model.means[metric]:.4f}" if metric in model.means else NOTHING
                       for model in models))
            for metric in metrics
        ]  # fmt: skip
        yield Section(f"MODELS THAT ANSWERED - {models[0].of} {models[0].name}", [Table(rows)])
