"""The first screen of a run; its figures are those of every other place that shows them."""

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import memray_eval as me
from memray_eval.analysis.comparing import Side, compare
from memray_eval.analysis.recommendation import recommend
from memray_eval.analysis.scores import read_scores
from memray_eval.benchmarks import get_suite
from memray_eval.metric import MetricColumns, linearise_ratio, summarise
from memray_eval.metrics import all_metrics
from memray_eval.report.answer import answer, no_answer_lines
from memray_eval.report.console import render, render_brief
from memray_eval.results.run_folder import RunFolder
from memray_eval.types import Cause, Figure, Record, Score, Summary
from tests.build import build_performance, build_record, build_sample, build_score
from tests.runs import candidates, full_summary, write_summarised

METRICS = ("memory_utilization", "groundedness", "coherence")
TWELVE = sorted(get_suite("memory").metrics)


def scored(metric: str, value: float, judge: str = "openai/gpt-4o", **parts: float) -> Score:
    return build_score(metric, value, judge=judge, parts=parts)


def records(n: int, n_claims: int | None = None) -> Iterator[Record]:
    """Answers of two candidates, of which the second is the better one on coherence alone."""
    chance = random.Random(7)
    for name in ("plain", "better"):
        for number in range(n):
            tp, fp, fn = chance.randint(0, 3), chance.randint(0, 2), chance.randint(0, 3)
            claims = chance.randint(0, 9) if n_claims is None else n_claims
            grounded = chance.randint(0, claims)
            counts = {"claims": claims, "grounded": grounded, "hallucinated": claims - grounded}
            f1 = 2 * tp / (2 * tp + fp + fn) if tp else float(not fp + fn)
            task = "night" if number % 3 else "day"
            sample = build_sample(id=f"S{number}", suite="memory", memory={"a": "b"}, task=task)
            low = 3 if name == "better" else 1
            scores = (
                scored("memory_utilization", f1, tp=tp, fp=fp, fn=fn),
                scored("groundedness", grounded / claims if claims else 1.0, "rules", **counts),
                scored("coherence", chance.randint(low, low + 2)),
            )
            yield build_record(sample, "Sleep.", *scores, candidate=name)


def finished(path: Path, rows: list[Record]) -> RunFolder:
    """A run's folder with the summary that a run would write of these records."""
    return write_summarised(path, rows, METRICS, "memory_utilization")


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    return finished(tmp_path_factory.mktemp("runs") / "run", list(records(60))).read_summary()


def change(summary: Summary, counts: dict[str, Any], **about: str) -> Summary:
    """The summary with these counts in the metrics of which this holds."""
    metrics = tuple(
        row.model_copy(update=counts) if about.items() <= dict(row).items() else row
        for row in summary.metrics
    )
    return summary.model_copy(update={"metrics": metrics})


def words(text: str) -> str:
    """A text without its line breaks."""
    return " ".join(text.split())


def test_a_comparison_and_the_tasks_have_the_ratios_of_the_records(tmp_path: Path) -> None:
    rows = list(records(60))
    folder = finished(tmp_path / "run", rows)
    table = {(row["metric"], row["candidate"]): row for row in me.Run(folder).table().to_pylist()}
    me.Run(folder).check(f"groundedness >= {table['groundedness', 'plain']['figure'] - 0.2}")
    alike = compare([side(folder, "plain"), side(folder, "better")])
    for metric in alike.metrics:
        figures = [table[metric.metric, name]["figure"] for name in ("plain", "better")]
        assert [metric.paired.mean_a, metric.paired.mean_b] == pytest.approx(figures)
        assert metric.average == ("mean" if metric.metric == "coherence" else "micro")
    for task in folder.read_summary().tasks:
        groundedness = next(metric for metric in task.metrics if metric.metric == "groundedness")
        parts = [
            score.parts
            for row in rows
            if (row.candidate.name, row.sample.task) == (task.candidate, task.task)
            for score in row.scores
            if score.metric == "groundedness"
        ]
        grounded, claims = (sum(of[name] for of in parts) for name in ("grounded", "claims"))
        assert groundedness.mean == pytest.approx(grounded / claims)
        assert groundedness.average == "micro"


def side(folder: RunFolder, name: str) -> Side:
    return Side(name, name, {}, read_scores(folder.records(), name))


def test_a_ratio_has_the_standard_error_of_a_ratio() -> None:
    """Against the spread of the ratio over many draws of units."""
    chance = np.random.default_rng(3)
    whole = chance.integers(1, 9, 4000).astype(float)
    part = chance.binomial(whole.astype(int), 0.7).astype(float)
    figures = linearise_ratio(part, whole)
    assert figures.mean() == pytest.approx(part.sum() / whole.sum())
    drawn = chance.integers(0, 4000, (1500, 4000))
    spread = (part[drawn].sum(axis=1) / whole[drawn].sum(axis=1)).std()
    assert figures.std(ddof=1) / np.sqrt(4000) == pytest.approx(spread, rel=0.1)
    assert linearise_ratio(np.zeros(3), np.zeros(3)) is None


def test_a_ratio_over_nothing_passes_no_check(tmp_path: Path) -> None:
    folder = finished(tmp_path / "run", list(records(5, n_claims=0)))
    with pytest.raises(me.CheckFailed, match="no claims"):
        me.Run(folder).check("groundedness >= 0")


def test_candidates_that_differ_beyond_chance_are_marked(summary: Summary) -> None:
    screen = render_brief(summary, "run")
    lines = {line.split()[0]: line for line in screen.splitlines() if line}
    assert lines["coherence"].count("*") == 1
    assert lines["groundedness"].count("*") == lines["memory_utilization"].count("*") == 0
    assert "* below the best of its row beyond chance" in words(screen)
    assert [pair.metric for pair in summary.differences if pair.is_shown] == ["coherence"]


@pytest.mark.parametrize(
    ("without", "counts"),
    [
        ((), "better on 2, third on 2, plain on 1"),
        (("coherence",), "better on 2, plain on 1, third on 1"),
        (METRICS, "better on 2, plain on 1"),
    ],
)
def test_of_several_candidates_none_is_best_on_a_metric_that_it_has_no_score_of(
    tmp_path: Path, without: tuple[str, ...], counts: str
) -> None:
    rows, third = list(records(60)), []
    for row in rows[60:]:
        scores = (of for of in row.scores if of.metric not in without)
        third.append(build_record(row.sample, row.response, *scores, candidate="third"))
    sentence = answer(finished(tmp_path / "run", rows + third).read_summary())
    assert sentence.startswith(f"Best, or not clearly below it, on 2 metrics: {counts}.")


def test_a_metric_with_too_few_answers_compares_nothing(summary: Summary) -> None:
    screen = render_brief(change(summary, {"n_no_answer": 20}, metric="coherence"), "run")
    head = words(screen.partition("\n\n")[0])
    assert "No difference is shown" in head
    assert "coherence of better is not decided: 20 of 80 did not answer, and 1 more." in head
    assert "*" not in screen  # nor in the legend


@pytest.mark.parametrize(
    ("lost", "head", "is_decided"),
    [
        ({"n_no_answer": 60}, "coherence is not decided: 60 of 120 did not answer.", False),
        ({"n_abstained": 24}, "is not decided: 24 of 84 verdicts could not be read.", False),
        ({"n_no_answer": 3}, "of 5 (3 of 63 did not answer).", True),
        ({"n_failed": 60}, "of 5.", True),
    ],
)
def test_of_one_candidate_too_few_answers_decide_nothing(
    tmp_path: Path, lost: dict[str, int], head: str, is_decided: bool
) -> None:
    folder = finished(tmp_path / "run", list(records(60)))
    summary = folder.read_summary()
    row = next(of for of in summary.metrics if of.metric == "coherence").model_copy(update=lost)
    alone = summary.model_copy(update={"metrics": (row,), "candidates": summary.candidates[:1]})
    assert answer(alone).endswith(head)
    assert bool(re.match(r"coherence [34]\.", answer(alone))) == is_decided
    assert "Nothing was scored" not in answer(alone)
    both = alone.model_copy(update={"metrics": (row, summary.metrics[0])})
    assert ("not decided" in answer(both)) != is_decided
    run = me.Run(folder)
    vars(run)["summary"] = alone
    for text in ("coherence >= 0", "coherence.low >= 0", "coherence.min >= 0"):
        if is_decided:
            run.check(text)
        else:
            with pytest.raises(me.CheckFailed, match="not decided: "):
                run.check(text)
    run.check("coherence.coverage >= 0")


@pytest.mark.parametrize(
    ("leads", "of_two", "of_one"),
    [
        (
            "memory_utilization",
            "memory_utilization: no difference is shown. better is better than plain on 1",
            "memory_utilization (micro) 0.529 [0.467, 0.592] of 1. coherence 4.02",
        ),
        (
            "coherence",
            "coherence +1.75 [1.38, 2.12], better over plain. better is better than plain on 1",
            "coherence 4.02 [3.82, 4.22] of 5. memory_utilization (micro) 0.529",
        ),
        (
            "",
            "better is better than plain on 1",
            "Lowest on its own scale: memory_utilization (micro) 0.529",
        ),
    ],
)
def test_the_first_metric_that_the_user_named_leads(
    summary: Summary, leads: str, of_two: str, of_one: str
) -> None:
    summary = summary.model_copy(update={"leads": leads})
    assert answer(summary).startswith(of_two)
    rows = [line.split()[0] for line in render_brief(summary, "run").splitlines()[3:]
            if "[" in line and line.split()[0] in METRICS]  # fmt: skip
    assert rows[0] == (leads or "memory_utilization")
    update = {"candidates": summary.candidates[:1], "metrics": summary.metrics[::2]}
    assert answer(summary.model_copy(update=update)).startswith(of_one)


def test_a_run_of_unreadable_verdicts_says_so_and_not_that_no_metric_applied(
    summary: Summary,
) -> None:
    row = summary.metrics[0].model_copy(
        update={"figure": Figure(), "n_scored": 0, "n_abstained": 30, "n_no_answer": 0}
    )
    alone = summary.model_copy(update={"metrics": (row,), "candidates": summary.candidates[:1]})
    says = f"Nothing was scored: {row.metric} is not decided: 30 of 30 verdicts could not be read."
    assert answer(alone) == says


@pytest.mark.parametrize(
    ("lost", "why"),
    [
        ("n_no_answer", "(2 of 62 did not answer)"),
        ("n_abstained", "(2 of 62 verdicts could not be read)"),
    ],
)
def test_what_is_left_out_is_told_beside_each_figure(summary: Summary, lost: str, why: str) -> None:
    speeds = [
        build_performance(name, 9.0, quality, 1.0, n=62, n_scored=60)
        for name, quality in (("plain", 70.0), ("better", 60.0))
    ]
    speed = {"performance": speeds, "recommendation": recommend(speeds), "headline": "coherence"}
    cut = change(summary, {lost: 2}, candidate="plain").model_copy(update=speed)
    screen = render_brief(cut, "run")
    line = next(line for line in screen.splitlines() if line.startswith("coherence"))
    assert line.count("n 60/62") == 1
    full = render(cut)
    assert f"  Avg Quality:         70.0/100 ± 2.0 {why}  (95 % interval; coherence)" in full
    assert f"Best Quality:        plain (70.0/100 {why})" in full
    assert f"Quality: 70.0/100 ± 2.0 {why}\n" in full
    assert full.count(why) == 3


def twelve(n_failed: int = 0) -> Summary:
    """A summary of one candidate with the assistant's metrics."""

    def figures(name: str) -> dict[str, np.ndarray]:
        low, high = all_metrics()[name].scale
        columns = dict.fromkeys(("value", *all_metrics()[name].parts), np.linspace(low, high, 50))
        return columns | {"claims": np.full(50, 2.0)}

    outcomes = "a-model-with-a-long-name", {"scored": 50, "error": n_failed}
    judges = {name: {"openai/gpt-4o-2024-08-06": 50} for name in TWELVE}
    judges["memory_utilization"] = {"rules+e": 50}
    causes = (
        (f"the server answered {500 + n}: " + "busy " * 30, 9 - n, f"{n:016x}") for n in range(5)
    )
    update = {
        "metrics": tuple(
            summarise(all_metrics()[name], MetricColumns(*outcomes, judges[name], figures(name)))
            for name in TWELVE
        ),
        "notes": (f"a note of many words, {'word ' * 40}",) * 4,
        "recommendation": None,
        "n_failed_units": n_failed,
        "causes": tuple(
            Cause(cause=cause, n_units=n, example="the whole text of it\n" * 9, unit_id=unit)
            for cause, n, unit in causes
        )
        * bool(n_failed),
    }
    return full_summary(50, candidates(1)).model_copy(update=update)


@pytest.mark.parametrize("n_failed", [0, 9])
def test_twelve_metrics_are_one_screen(n_failed: int) -> None:
    assert len(TWELVE) == 12
    lines = render_brief(twelve(n_failed), "results/memory-x").splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    (row,) = [line for line in lines if line.startswith("empathy ")]
    assert re.fullmatch(r"openai/gpt-4o-2024-08(-06|…)", row.split()[-1])
    (row,) = [line for line in lines if line.startswith("memory_utilization ")]
    assert row.endswith("rules est.")
    assert ("50/59" in row) == bool(n_failed)
    screen = "\n".join(lines)
    assert "Micro: one ratio over all claims or keys" in words(screen)
    assert "verdict (memory_utilization: recall 0.31" in words(screen)
    assert "and 3 more notes with --full" in screen
    assert ("9 of 50 answers failed" in screen) == bool(n_failed)
    assert "The run is in results/memory-x" in screen
    assert len([line for line in lines if line.startswith("  memray-eval ")]) == 2
    assert ("memray-eval resume results/memory-x" in screen) == bool(n_failed)


@pytest.mark.parametrize(
    ("cause", "resumes"),
    [("Unavailable: 503", True), ("TimeoutError: mine", True), ("KeyError: 'my metric'", False)],
)
@pytest.mark.parametrize("n_candidates", [1, 2])
def test_a_run_of_which_all_failed_compares_nothing(
    cause: str, resumes: bool, n_candidates: int
) -> None:
    failed = Cause(cause=cause, n_units=400, example="x", unit_id="u")
    full = full_summary(400, candidates(n_candidates))
    n = full.n_units
    summary = full.model_copy(update={"n_failed_units": n, "causes": (failed,)})
    screen = words(render_brief(summary, "results/x"))
    assert f"All {n:,} answers failed: {cause}. Scored all the same:" in screen
    assert "is better than" not in screen
    assert ("memray-eval resume results/x" in screen) == resumes
    unscored = tuple(metric.model_copy(update={"n_scored": 0}) for metric in full.metrics)
    generation = full.candidates[0].model_copy(update={"no_answer": {"limit": 3}})
    gone = full.model_copy(update={"metrics": unscored, "candidates": (generation,)})
    (line, *_) = no_answer_lines(gone)
    assert line.endswith(", not scored")


@pytest.mark.parametrize("n_candidates", [1, 2, 4])
@given(estimated=st.sets(st.sampled_from(TWELVE)))
def test_the_head_names_no_estimate(n_candidates: int, estimated: set[str]) -> None:
    summary = full_summary(400, candidates(n_candidates))
    for name in TWELVE:  # each that is in the summary has 90 scores
        summary = change(summary, {"n_estimated": 90 * (name in estimated)}, metric=name)
    head, _, rest = render_brief(summary, "results/x").partition("\n\n")
    assert not [name for name in estimated if re.search(rf"\b{name}\b", head)]
    rows = [line.split()[0] for line in rest.split("\n\n")[0].splitlines()[1:]]
    are_estimates = [name in estimated for name in rows if name in TWELVE]
    assert are_estimates == sorted(are_estimates)


@pytest.mark.parametrize(
    ("n", "says"), [(1, "the figure is an estimate."), (2, "all 2 figures are estimates.")]
)
def test_a_run_of_estimates_alone_says_how_many_they_are(n: int, says: str) -> None:
    summary = change(full_summary(400, candidates(1)), {"n_estimated": 90})
    update = {"metrics": summary.metrics[:n], "n_failed_units": 0}
    assert answer(summary.model_copy(update=update)) == f"Without a judge's verdict: {says}"


def test_four_candidates_fit_the_width() -> None:
    summary = full_summary(400, candidates(4))
    lines = render_brief(summary, "results/x").splitlines()
    heads = [line for line in lines if line.startswith("metric")]
    shown = [column.candidate for column in summary.candidates]
    assert [word for head in heads for word in head.split() if word != "metric"] == shown
    for name in {column.metric for column in summary.metrics}:
        rows = [line for line in lines if line.startswith(name)]
        assert len(rows) == len(heads)
        assert max(map(len, (*rows, *heads))) <= 80
        assert sum(row.count("[") for row in rows) == 4
