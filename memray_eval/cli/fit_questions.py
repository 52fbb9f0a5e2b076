"""The work of `calibrate --fit-questions`: a model's answers to yes/no questions, fitted to
labels."""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from memray_eval.analysis.agreement import rescale
from memray_eval.analysis.question_fit import check_labels, fit_weights
from memray_eval.api.calibrating import EXISTING_ONLY, LabelledFile, make_evaluate, write_responses
from memray_eval.cli.app import say
from memray_eval.config.loading import load_config
from memray_eval.config.sections import FittedQuestions
from memray_eval.datasets.labels import LabelledResponse
from memray_eval.errors import ConfigError, DataError, JudgeError, cause_of
from memray_eval.judges.first_token import revision_of
from memray_eval.judges.router import AUTO
from memray_eval.metrics.questions import digest_of, logit, questions_of, read_fits, write_fits
from memray_eval.ports import FloatArray
from memray_eval.storage.scratch import ScratchFolder
from memray_eval.types import QUESTIONS, RULES, Score

SEED = 0  # of the folds


def fit_to_labels(
    labelled: LabelledFile,
    judges: Sequence[str],
    overrides: dict[str, Any],
    settings: Sequence[str],
    yes: bool,
    save: str | None,
) -> FittedQuestions:
    """Asks a model the metric's questions about each response, by a run of its own, fits them to
    the labels, and writes the fit to `save`. Raises ConfigError, and DataError if the labels say
    too little, before anything is asked."""
    if len(judges) != 1 or judges[0] in (RULES, AUTO, QUESTIONS):
        raise ConfigError(
            "--fit-questions asks one model: name it with --judge embedded or --judge SERVER/MODEL"
        )
    if save is not None and Path(save).exists():
        read_fits(save)
    metric, rows = labelled.metric, labelled.rows
    questions = questions_of(metric)
    check_labels(_shares(rows, labelled.scale), [row.cluster for row in rows])
    job = {"dataset": str(labelled.path), "candidates": [EXISTING_ONLY], **overrides}
    unfitted = FittedQuestions(
        model=judges[0],
        revision=revision_of(judges[0], load_config(None, job, settings).judging),
        questions=digest_of(questions),
        weights=dict.fromkeys(questions, 0.0),
        intercept=0.0,
    )
    with ScratchFolder("calibrate") as folder:
        path, manifests = f"{folder}/unfitted.json", dict[str, Mapping[str, Any]]()
        write_fits(path, {metric: unfitted})
        keys = overrides | {"judging.questions.fit": path, "judging.repeats": None}
        evaluate = make_evaluate(folder, keys, settings, yes, manifests, say)
        scores = {
            record.sample.id: score
            for record in evaluate(write_responses(rows, Path(folder)), QUESTIONS)
            for score in record.scores
        }
    if n_calls := sum(score.calls or 0 for score in scores.values()):
        span_s = manifests[QUESTIONS]["stages"]["judge"]["span_s"]
        say(f"{n_calls:,} questions in {span_s:.1f} s: {span_s / n_calls:.3f} s a question")
    fit = _fit(unfitted, labelled, scores)
    if save is not None:
        write_fits(save, {metric: fit})
        say(save)
    return fit


def _fit(
    unfitted: FittedQuestions, labelled: LabelledFile, scores: Mapping[str, Score]
) -> FittedQuestions:
    """The fit with weights. Responses about which the model gave no answers are left out."""
    judgments = {id: json.loads(score.judgment or "{}") for id, score in scores.items()}
    answers = {id: judgment["p_yes"] for id, judgment in judgments.items() if "p_yes" in judgment}
    kept = [row for row in labelled.rows if row.id in answers]
    if n_left_out := len(labelled.rows) - len(kept):
        causes = Counter(score.error for score in scores.values() if score.error).most_common(1)
        why = cause_of(causes[0][0]) if causes else "the run has no score of them"
        missing = f"{n_left_out} of {len(labelled.rows)} responses got no answers of "
        missing += f"{unfitted.model}: {why}"
        try:
            check_labels(_shares(kept, labelled.scale), [row.cluster for row in kept])
        except DataError:
            rest = f"; those of the other {len(kept)} are too few" if kept else ""
            raise JudgeError(f"{missing}{rest}") from None
        say(missing)
    fitted = fit_weights(
        np.array([[logit(answers[row.id][name]) for name in unfitted.weights] for row in kept]),
        _shares(kept, labelled.scale),
        [row.cluster for row in kept],
        SEED,
    )
    figures = {name: value for name, value in fitted._asdict().items() if name != "weights"}
    origin = {
        "weights": dict(zip(unfitted.weights, map(float, fitted.weights), strict=True)),
        "n": len(kept),
        "labels": labelled.path.name,
        "labels_digest": hashlib.sha256(labelled.path.read_bytes()).hexdigest()[:16],
        "seed": SEED,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "command": shlex.join(["memray-eval", *sys.argv[1:]]),
    }
    return unfitted.model_copy(update=figures | origin)


def _shares(rows: Sequence[LabelledResponse], scale: tuple[float, float]) -> FloatArray:
    """The mean of each response's labels, from 0 to 1."""
    means = [np.nanmean(np.array(row.people, np.float64)) for row in rows]
    return rescale(np.array(means), scale, (0, 1))
