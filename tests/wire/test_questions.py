"""`judge: questions` over HTTP, on the local executor: fitted to labels, asked, remembered, and
refused where the fit is of something else."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memray_eval.cli import main
from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import FittedQuestions
from memray_eval.errors import ConfigError
from memray_eval.execution.runs import resume, run
from memray_eval.judges.limits import breaker
from memray_eval.metrics.questions import digest_of, question_sets, read_fits, write_fits
from memray_eval.types import EXISTING, Score
from tests.build import write_lines
from tests.servers.provider import Answer, Fault, Outcome, Provider, serving

METRIC, MODEL = "safety", "lab/tiny"
QUESTIONS = question_sets()[METRIC]


def answer(body: dict[str, Any]) -> Outcome:
    """Of a careful response it says yes more to whatever speaks for it; of any, yes more often."""
    prompt = body["messages"][-1]["content"]
    speaks_for = any(QUESTIONS[name] in prompt for name in ("warns", "refers", "careful"))
    p_yes = 0.8 if ("careful" in prompt.split("Question:")[0]) == speaks_for else 0.4
    tokens = {"Yes": 0.75 * p_yes, " yes": 0.25 * p_yes, "No": 1 - p_yes, "Perhaps": 0.01}
    return Answer("Yes", "truncated", first_token={t: math.log(p) for t, p in tokens.items()})


@pytest.fixture
def server() -> Iterator[Provider]:
    with serving(answer) as provider:
        yield provider


def config(tmp_path: Path, server: Provider, **keys: Any) -> RunConfig:
    rows = [
        {"id": "a", "query": "May I?", "response": "Be careful and ask a doctor."},
        {"id": "b", "query": "May I?", "response": "Sure, why not."},
        {"id": "c", "query": "May I?", "response": ""},
    ]
    questions = {"fit": str(tmp_path / "fit.json"), "revision": "abc1", **keys.pop("questions", {})}
    judging = {"cache": str(tmp_path / "calls.sqlite"), "questions": questions, "tries": 1}
    job = {
        "dataset": str(write_lines(tmp_path / "rows.jsonl", rows)),
        "candidates": [{"name": EXISTING, "model": EXISTING, "backend": EXISTING}],
        "metrics": [METRIC],
        "judge": "questions",
        "judging": judging | keys.pop("judging", {}),
        "servers": {"lab": {"url": server.base_url}},
        "out": str(tmp_path / "results"),
    }
    return RunConfig.model_validate(job | keys)


def calibrate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: Provider, *more: str, n: int = 48
) -> int | str | None:
    """The command's exit code."""
    rows = [
        {"q": f"q{n}?", "a": "Be careful." if n % 2 else "Sure.", "safe": float(n % 2)}
        for n in range(n)
    ]
    labels = write_lines(tmp_path / "labels.jsonl", rows)
    words = ["calibrate", str(labels), "--metric", METRIC, "--map", "response=a,query=q,human=safe"]
    words += ["--judge", MODEL, "--fit-questions", "--save", str(tmp_path / "fit.json")]
    words += ["--set", f"servers={{lab: {{url: '{server.base_url}'}}}}"]
    words += ["--set", f"judging.cache={tmp_path / 'calls.sqlite'}"]
    monkeypatch.setattr(sys, "argv", ["memray-eval", *words, *more])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def fit_by_hand(tmp_path: Path, **fields: Any) -> None:
    """A fit by which what speaks for a response weighs 1, and what speaks against it -1."""
    good = ("warns", "refers", "careful")
    weights = {name: 1.0 if name in good else -1.0 for name in QUESTIONS}
    fit = FittedQuestions(
        model=MODEL,
        revision="abc1",
        questions=digest_of(QUESTIONS),
        weights=weights,
        intercept=0.5,
        n=60,
        auc=0.91,
        kappa=0.7,
        labels="labels.jsonl",
    )
    write_fits(str(tmp_path / "fit.json"), {METRIC: fit.model_copy(update=fields)})


def scores(job: RunConfig) -> dict[str, Score]:
    records = run(job, lambda line: None, quiet=True).folder.each()
    return {record.sample.id: record.scores[0] for record in records}


def test_fits_to_labels_and_scores_by_the_fit(
    tmp_path: Path,
    server: Provider,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    revision = "judging.questions.revision=abc1"
    assert calibrate(monkeypatch, tmp_path, server, "--set", revision) == 0
    fit = read_fits(str(tmp_path / "fit.json"))[METRIC]
    assert f"{METRIC}: {fit}" in capsys.readouterr().out
    assert (fit.model, fit.revision, fit.n, fit.labels) == (MODEL, "abc1", 48, "labels.jsonl")
    assert (fit.auc, fit.kappa) == (1.0, 1.0)
    assert fit.weights["careful"] > 0 > fit.weights["would_harm"]
    by_id = scores(config(tmp_path, server))
    assert (by_id["a"].value or 0) > 0.7 > 0.3 > (by_id["b"].value or 1)


def test_the_value_is_the_fits_and_an_estimate(tmp_path: Path, server: Provider) -> None:
    fit_by_hand(tmp_path)
    finished = run(config(tmp_path, server), lambda line: None, quiet=True)
    by_id = {record.sample.id: record.scores[0] for record in finished.folder.each()}
    careful, careless = by_id["a"], by_id["b"]
    # a: log odds of 0.8 for 3 and of 0.4 against 5; b the other way round
    for_it, against = math.log(0.8 / 0.2), math.log(0.4 / 0.6)
    assert careful.value == pytest.approx(1 / (1 + math.exp(-(0.5 + 3 * for_it - 5 * against))))
    assert careless.value == pytest.approx(1 / (1 + math.exp(-(0.5 + 3 * against - 5 * for_it))))
    assert json.loads(careful.judgment or "")["p_yes"]["careful"] == pytest.approx(0.8)
    assert (careful.judge, careful.is_estimate, careful.calls) == (f"questions/{MODEL}", True, 8)
    assert not by_id["c"].is_estimate  # empty: nobody was asked
    assert server.n_requests == 16
    body = server.requests[0]
    assert (body["max_tokens"], body["logprobs"], body["top_logprobs"]) == (1, True, 20)
    assert "response_format" not in body
    (metric,) = finished.summary.metrics
    assert (
        metric.worth
        == "AUC 0.91, kappa 0.70, cross-validated on 60 labelled answers (labels.jsonl)"
    )
    assert metric.n_estimated == 2


def test_answers_are_remembered(tmp_path: Path, server: Provider) -> None:
    fit_by_hand(tmp_path)
    first = scores(config(tmp_path, server))
    fit_by_hand(tmp_path, intercept=2.0)  # other weights ask the same questions
    again = scores(config(tmp_path, server))
    assert server.n_requests == 16
    assert again["a"].cached
    assert (again["b"].value or 0) > (first["b"].value or 1)


def test_a_resumed_run_keeps_its_fit(tmp_path: Path, server: Provider) -> None:
    fit_by_hand(tmp_path)
    server.down = True
    stopped = run(config(tmp_path, server), lambda line: None, quiet=True)
    assert {r.scores[0].status for r in stopped.folder.each()} == {"error", "no_answer"}
    server.down = False
    fit_by_hand(tmp_path, intercept=2.0)
    with pytest.raises(ConfigError, match="the rubric of safety was"):
        resume(stopped.folder.path, lambda line: None)
    fit_by_hand(tmp_path)
    resumed = resume(stopped.folder.path, lambda line: None)
    assert {r.scores[0].status for r in resumed.folder.each()} == {"scored", "no_answer"}


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Answer("Yes"), "NoLogprobs: the server gives no logprobs"),
        (Answer("x", first_token={"<think>": -0.1, "Sure": -3.0}), "Malformed: the first token is"),
        (Fault(400, code="logprobs is not supported"), "NoLogprobs: lab/tiny gives no logprobs"),
        (Answer("", "filtered"), "Refused: the judge or its content filter declined"),
    ],
    ids=["ignored", "neither yes nor no", "refused by the server", "filtered"],
)
def test_what_is_no_answer_is_the_units_error(reply: Outcome, error: str, tmp_path: Path) -> None:
    fit_by_hand(tmp_path)
    with serving(lambda body: reply) as server:
        assert str(scores(config(tmp_path, server))["a"].error).startswith(error)


@pytest.mark.parametrize(
    ("fit", "keys", "error"),
    [
        ({"revision": "abc2"}, {}, "fitted on lab/tiny at abc2, and here is abc1"),
        ({"questions": "0" * 16}, {}, "those of safety have changed since"),
        ({}, {"metrics": ["safety", "empathy"]}, "no weights for empathy; fit them: `memray-eval"),
        ({}, {"questions": {"fit": None}}, "names no file, so there are no weights for safety"),
        ({}, {"questions": {"revision": None}}, "the revision of lab/tiny is not known"),
        ({}, {"metrics": ["preference"]}, "preference has none"),
        ({}, {"judge": ["questions", MODEL]}, "cannot sit on a jury"),
        ({}, {"judge": {"safety/a": "questions"}}, "for all tasks or for none"),
        ({"model": "anthropic/claude"}, {}, "anthropic/claude gives no logprobs"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_fit_of_something_else_is_refused_before_the_run(
    fit: dict[str, Any], keys: dict[str, Any], error: str, tmp_path: Path, server: Provider
) -> None:
    fit_by_hand(tmp_path, **fit)
    with pytest.raises(ConfigError) as raised:
        run(config(tmp_path, server, **keys), lambda line: None, quiet=True)
    assert error in str(raised.value)
    assert server.n_requests == 0


def test_a_server_that_is_down_is_named_and_not_the_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(breaker, "UNREACHED_S", 0.2)
    gone = Provider(lambda body: "", port=9)  # of nobody
    more = ("--set", "judging.questions.revision=r", "--set", "judging.breaker.probe_s=0.1")
    assert calibrate(monkeypatch, tmp_path, gone, *more) == 3
    said = capsys.readouterr().err
    assert (
        "lab/tiny: Unavailable: its server was never reached: no answer: 127.0.0.1:9 refused"
        in said
    )
    assert "too few" not in said
    assert "memray-eval resume" not in said


@pytest.mark.parametrize(
    ("more", "n", "error"),
    [
        ((), 48, "the revision of lab/tiny is not known"),
        (("--judge", "rules"), 48, "--fit-questions asks one model"),
        (("--set", "judging.questions.revision=r"), 30, "are too few to fit to"),
        (("--save", "{folder}/other.json"), 48, "--fit-questions did not write it"),
    ],
)
def test_a_fit_that_cannot_be_made(
    more: tuple[str, ...],
    n: int,
    error: str,
    tmp_path: Path,
    server: Provider,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "other.json").write_text('{"judge": "rules"}')
    more = tuple(word.format(folder=tmp_path) for word in more)
    assert calibrate(monkeypatch, tmp_path, server, *more, n=n) == 2
    assert error in capsys.readouterr().err
    assert not (tmp_path / "fit.json").exists()
    assert server.n_requests == 0
