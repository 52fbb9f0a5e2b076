"""One figure stands for each metric and candidate: console, page, JSON, CSV, Parquet and Python
show the same number, also where it is a ratio, an estimate, of few units, or none at all."""

import csv
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow.parquet as pq
import pytest

import memray_eval as me
from memray_eval.report.console import render, render_brief
from memray_eval.report.exports import export_evaluation, write_csv, write_parquet
from memray_eval.report.html.page import render_html
from memray_eval.results.run_folder import RunFolder
from memray_eval.types import Record, Response, Score
from tests.build import build_record, build_sample, build_score
from tests.unit.report.page import Page
from tests.unit.report.test_brief import finished, scored

CANDIDATES = ("plain", "better", "silent")  # the last one claims nothing
N = 24
DIGITS = {"coherence": 2, "groundedness": 3, "memory_utilization": 3}
NAMES = {
    "coherence": "coherence",
    "groundedness": "groundedness (micro)",
    "memory_utilization": "memory_utilization (micro)",
}


class Expected(NamedTuple):
    """A figure by hand (None: nothing to divide by), and the units that it is of."""

    value: float | None
    n: int


def records() -> Iterator[Record]:
    for position, name in enumerate(CANDIDATES):
        for number in range(N):
            sample = build_sample(id=f"S{number}", suite="memory", memory={"a": "b"}, task="night")
            if number % 8 == position:
                gone = Response(error="HTTP 500")
                yield build_record(sample, gone, *failed(), candidate=name)
            else:
                yield build_record(sample, "Sleep.", *scores(number, position), candidate=name)


def failed() -> tuple[Score, ...]:
    return tuple(build_score(name, None, error="generation failed: HTTP 500") for name in DIGITS)


def scores(number: int, position: int) -> tuple[Score, ...]:
    tp, fp, fn = number % 4, (number + position) % 3, (3 - position) * (number % 2)
    claims = 0 if position == 2 else number % 7
    grounded = min(claims, number % 3 + position)
    judge = "rules" if number % 2 else "openai/gpt-4o"
    cautious = Score(metric="coherence", status="abstained", judge="openai/gpt-4o", error="Refused")
    return (
        scored(
            "memory_utilization",
            2 * tp / (2 * tp + fp + fn) if tp else float(not fp + fn),
            "openai/gpt-4o", tp=tp, fp=fp, fn=fn,
        ),
        scored(
            "groundedness",
            grounded / claims if claims else 1.0,
            judge, claims=claims, grounded=grounded, hallucinated=claims - grounded,
        ),
        cautious if number % 5 == 4 else scored("coherence", min(5, 1 + number % 3 + position)),
    )  # fmt: skip


def parts_of(score: Score) -> tuple[float, float]:
    """What a score adds to its metric's figure, and to what that is divided by."""
    of = score.parts
    if score.metric == "groundedness":
        return of["grounded"], of["claims"]
    if score.metric == "memory_utilization":
        return 2 * of["tp"], 2 * of["tp"] + of["fp"] + of["fn"]
    return score.value or 0.0, 1.0


Key: TypeAlias = tuple[str, str]  # a metric and a candidate


def figures_of(pairs: Mapping[Key, Sequence[tuple[float, float]]]) -> dict[Key, Expected]:
    figures = {}
    for key, of_key in pairs.items():
        part, whole = map(sum, zip(*of_key, strict=True))
        figures[key] = Expected(part / whole if whole else None, len(of_key))
    return figures


def by_hand() -> dict[Key, Expected]:
    added = defaultdict[Key, list[tuple[float, float]]](list)
    for row in records():
        for score in row.scores:
            if score.value is not None:
                added[score.metric, row.candidate.name].append(parts_of(score))
    return figures_of(added)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return finished(tmp_path_factory.mktemp("run"), list(records()))


EXPECTED = by_hand()


def shown(metric: str, value: float | None) -> str:
    return "no claims" if value is None else f"{value:.{DIGITS[metric]}f}"


def test_the_run_has_what_makes_figures_hard() -> None:
    assert EXPECTED["groundedness", "silent"] == (None, 21)
    for (metric, _), expected in EXPECTED.items():
        assert expected.n < 21 if metric == "coherence" else expected.n == 21


def test_the_summary_and_the_json_export(folder: RunFolder, tmp_path: Path) -> None:
    summary = folder.read_summary()
    export_evaluation(str(tmp_path / "eval.json"), folder.each(), summary)
    exported = json.loads((tmp_path / "eval.json").read_text())["summary"]["metrics"]
    assert len(exported) == len(EXPECTED)
    for metric in (*(metric.model_dump() for metric in summary.metrics), *exported):
        wanted = EXPECTED[metric["metric"], metric["candidate"]]
        assert metric["figure"]["value"] == pytest.approx(wanted.value)
        assert metric["n_scored"] == wanted.n
        assert (metric["figure"]["low"] is None) == (wanted.value is None)


def test_pythons_table(folder: RunFolder) -> None:
    rows = me.Run(folder).table().to_pylist()
    figures = {(of.metric, of.candidate): of.figure for of in folder.read_summary().metrics}
    assert len(rows) == len(EXPECTED)
    for row in rows:
        key = row["metric"], row["candidate"]
        assert row["figure"] == pytest.approx(EXPECTED[key].value)
        assert (row["low"], row["high"]) == (figures[key].low, figures[key].high)
        assert row["n_scored"] == EXPECTED[key].n
        assert (row["mean"] is None) == (EXPECTED[key].value is None), "1.0 over no claims"
        assert row["average"] == ("mean" if row["metric"] == "coherence" else "micro")


def test_csv_and_parquet_hold_what_the_figures_are_made_of(
    folder: RunFolder, tmp_path: Path
) -> None:
    write_csv(str(tmp_path / "run.csv"), folder.records())
    write_parquet(str(tmp_path / "run.parquet"), folder.records())
    with (tmp_path / "run.csv").open(newline="") as lines:
        of_csv = list(csv.DictReader(lines))
    of_parquet = pq.read_table(tmp_path / "run.parquet").to_pylist()
    assert len(of_csv) == len(of_parquet) == N * len(CANDIDATES) * len(DIGITS)
    for rows in (of_csv, of_parquet):
        pairs = defaultdict[Key, list[tuple[float, float]]](list)
        for row in rows:
            if row["value"] not in ("", None):
                pair = float(row["part"]), float(row["whole"])
                pairs[row["metric"], row["candidate"]].append(pair)
        figures = figures_of(pairs)
        assert figures.keys() == EXPECTED.keys()
        assert all(figures[key] == pytest.approx(wanted) for key, wanted in EXPECTED.items())


def test_the_screen_of_several_candidates(folder: RunFolder) -> None:
    summary = folder.read_summary()
    by_key, names = dict[Key, str](), list[str]()
    for line in render_brief(summary, "run").splitlines():
        cells = re.split(r"\s{2,}", line.strip())
        if cells[0] == "metric":
            names = cells[1:]
        for metric, name in NAMES.items():
            is_estimate = metric == "groundedness"
            if cells[0] == name + " est." * is_estimate and len(cells) == len(names) + 1:
                by_key |= {(metric, who): cell for who, cell in zip(names, cells[1:], strict=True)}
    assert by_key.keys() == EXPECTED.keys()
    for summarised in summary.metrics:
        cell, figure = by_key[summarised.metric, summarised.candidate], summarised.figure
        text = shown(summarised.metric, EXPECTED[summarised.metric, summarised.candidate].value)
        between = f" [{bounds(summarised.metric, figure.low, figure.high)}]" if figure.low else ""
        # Only a figure that lacks unread verdicts says of how many answers it is
        shown_text, _, answers = cell.rstrip(" *").partition(" n ")
        assert shown_text == text + between
        assert bool(answers) == (summarised.n_abstained > 0)


def bounds(metric: str, low: float | None, high: float | None) -> str:
    return f"{low or 0:.{DIGITS[metric]}f}, {high or 0:.{DIGITS[metric]}f}"


@pytest.mark.parametrize("name", CANDIDATES)
def test_the_screen_of_one_candidate(folder: RunFolder, name: str) -> None:
    summary = folder.read_summary()
    alone: dict[str, Any] = {
        field: tuple(of for of in getattr(summary, field) if of.candidate == name)
        for field in ("candidates", "metrics")
    }
    summary = summary.model_copy(update={**alone, "differences": ()})
    lines = render_brief(summary, "run").splitlines()
    for metric, of_metric in NAMES.items():
        (line,) = [line for line in lines if line.startswith(f"{of_metric}  ")]
        _, figure, between, n, judge = re.split(r"\s{2,}", line)
        of = next(row.figure for row in summary.metrics if row.metric == metric)
        wanted = EXPECTED[metric, name]
        assert figure == shown(metric, wanted.value)
        assert n == f"{wanted.n}/{N}"
        assert between == ("-" if wanted.value is None else bounds(metric, of.low, of.high))
        assert judge.endswith("est.") == (metric == "groundedness")


def test_the_full_text(folder: RunFolder) -> None:
    summary = folder.read_summary()
    sections = re.split(r"^\[\d+\] ", render(summary), flags=re.MULTILINE)[1:]
    assert len(sections) == len(EXPECTED)
    for metric, section in zip(summary.metrics, sections, strict=True):
        value = EXPECTED[metric.metric, metric.candidate].value
        assert section.splitlines()[0] == f"{metric.title} - {metric.candidate}"
        if value is not None:
            digits = 2 if metric.metric == "coherence" else 4
            assert f"{value:.{digits}f}" in section
        else:
            assert len(re.findall(r"(Score|Rate): +no claims", section)) == 4
            assert not re.search(r"\b[01]\.0000", section)


def test_the_page(folder: RunFolder) -> None:
    page = Page(render_html(folder))
    cells = {
        (attrs["data-metric"], attrs["data-candidate"]): attrs
        for _, attrs in page.tags
        if "data-figure" in attrs
    }
    assert cells.keys() == EXPECTED.keys()
    named = re.findall(r'<span title="[^"]*">([^<]+)</span> <small>', render_html(folder))
    assert {*named} == {*NAMES.values()}
    for metric in folder.read_summary().metrics:
        wanted, figure = EXPECTED[metric.metric, metric.candidate], metric.figure
        text, cell = shown(metric.metric, wanted.value), cells[metric.metric, metric.candidate]
        assert text in page.text
        assert cell["data-figure"] == text
        assert cell["data-n"] in (f"{wanted.n}", f"{wanted.n}/{N}")
        ends = bounds(metric.metric, figure.low, figure.high) if wanted.value is not None else ", "
        assert f"{cell['data-low']}, {cell['data-high']}" == ends
