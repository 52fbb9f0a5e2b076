"""Tells of the models that answered, where several did under one name, and of marks of thinking
that are not known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from memray_eval.report.marks import NOTHING
from memray_eval.report.tables import align_columns
from memray_eval.types import ServedModel


def _changed(served: Sequence[ServedModel]) -> Iterator[list[ServedModel]]:
    """The models of each candidate and judge that answered as several."""
    for _, models in groupby(served, key=lambda one: (one.of, one.name)):
        if len(several := list(models)) > 1:
            yield several


def served_lines(served: Sequence[ServedModel]) -> Iterator[str]:
    """A sentence for each candidate and judge that answered as several models."""
    for models in _changed(served):
        counts = ", ".join(f"{one.model} ({one.n:,})" for one in models)
        yield (
            f"{models[0].of} {models[0].name} answered as {len(models)} models: {counts}. "
            "`memray-eval report --full` prints the figures of each."
        )


def served_tables(served: Sequence[ServedModel]) -> Iterator[tuple[str, list[str]]]:
    """For each of them a title and a table: a column a model, a row a metric with its means."""
    for models in _changed(served):
        metrics = sorted({metric for one in models for metric in one.means})
        rows = [("mean", *(one.model for one in models)), ("n", *(f"{one.n:,}" for one in models))]
        rows += [
            (metric, *(f"{one.means[metric]:.4f}" if metric in one.means else NOTHING
                       for one in models))
            for metric in metrics
        ]  # fmt: skip
        yield f"MODELS THAT ANSWERED - {models[0].of} {models[0].name}", list(align_columns(rows))


def mark_lines(marks: Mapping[str, int]) -> Iterator[str]:
    """What to say of answers that begin with a mark that may be one of thinking."""
    if marks:
        n, named = sum(marks.values()), ", ".join(list(marks)[:5])
        yield (
            f"{n:,} answers begin with a mark that looks like thinking and is not known: {named}. "
            "They are scored whole."
        )
