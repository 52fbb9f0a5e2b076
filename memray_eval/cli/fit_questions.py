"""The work of `calibrate --fit-questions`: a model's answers to yes/no questions, fitted to
labels."""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from memray_eval.analysis.agreement import rescale
from memray_eval.analysis.question_fit import check_labels, fit_weights
from memray_eval.cli.app import say
from memray_eval.config.sections import FittedQuestions, JudgingConfig
from memray_eval.datasets.labels import LabelledResponse
from memray_eval.errors import ConfigError
from memray_eval.judges.first_token import revision_of
from memray_eval.judges.router import AUTO
from memray_eval.metrics.questions import digest_of, logit, questions_of
from memray_eval.ports import FloatArray
from memray_eval.types import QUESTIONS, RULES, Record

SEED = 0  # of the folds


def begin_fit(
    metric: str,
    judges: Sequence[str],
    judging: JudgingConfig,
    rows: Sequence[LabelledResponse],
    scale: tuple[float, float],
) -> FittedQuestions:
    """A fit without weights, by which the model is asked the metric's questions. Raises ConfigError
    if no model is named, or its revision is not known; DataError if the labels, which are on the
    `scale`, say too little."""
    if len(judges) != 1 or judges[0] in (RULES, AUTO, QUESTIONS):
        raise ConfigError(
            "--fit-questions asks one model: name it with --judge embedded or --judge SERVER/MODEL"
        )
    questions = questions_of(metric)
    check_labels(_shares(rows, scale), [row.cluster for row in rows])
    return FittedQuestions(
        model=judges[0],
        revision=revision_of(judges[0], judging),
        questions=digest_of(questions),
        weights=dict.fromkeys(questions, 0.0),
        intercept=0.0,
    )


def finish_fit(
    metric: str,
    begun: FittedQuestions,
    rows: Sequence[LabelledResponse],
    scale: tuple[float, float],
    records: Iterable[Record],
    labelled: Path,
) -> FittedQuestions:
    """The fit with weights, by the answers in the `records` and the mean of people's labels, which
    are on the `scale`; responses without answers are left out. Raises DataError."""
    answers = dict(_answers_of(records, metric))
    kept = [row for row in rows if row.id in answers]
    if len(kept) < len(rows):
        say(f"{len(rows) - len(kept)} of {len(rows)} responses got no answers and are left out")
    found = fit_weights(
        np.array([[logit(answers[row.id][name]) for name in begun.weights] for row in kept]),
        _shares(kept, scale),
        [row.cluster for row in kept],
        SEED,
    )
    figures = {name: value for name, value in found._asdict().items() if name != "weights"}
    named = {
        "weights": dict(zip(begun.weights, map(float, found.weights), strict=True)),
        "n": len(kept),
        "labels": labelled.name,
        "labels_digest": hashlib.sha256(labelled.read_bytes()).hexdigest()[:16],
        "seed": SEED,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "command": shlex.join(["memray-eval", *sys.argv[1:]]),
    }
    return begun.model_copy(update=figures | named)


def _shares(rows: Sequence[LabelledResponse], scale: tuple[float, float]) -> FloatArray:
    """The mean of each response's labels, from 0 to 1."""
    means = [np.nanmean(np.array(row.people, np.float64)) for row in rows]
    return rescale(np.array(means), scale, (0, 1))


def _answers_of(
    records: Iterable[Record], metric: str
) -> Iterator[tuple[str, Mapping[str, float]]]:
    """P(yes) by question of each response that was asked about."""
    for record in records:
        for score in record.scores:
            answers = json.loads(score.judgment or "{}").get("p_yes")
            if score.metric == metric and score.value is not None and answers:
                yield record.sample.id, answers
