"""The HTML report: what it shows, what it leaves out, and that no text of a run can become markup
or code."""

import json
import math
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.analysis import score_table
from memray_eval.analysis import scores as scores_module
from memray_eval.analysis.scores import Intervals, measure_intervals, number_clusters, read_scores
from memray_eval.analysis.statistics import (
    figures_interval,
    mean_interval,
    standard_error,
    wilson_interval,
)
from memray_eval.errors import ConfigError, DataError
from memray_eval.report.html.page import render_html, write_html
from memray_eval.report.html.plots import distribution, ticks
from memray_eval.report.html.samples import CHUNK, embed
from memray_eval.report.html.view_model import RunCost, by_task, curves, tabulate_figures
from memray_eval.report.sections import Cell
from memray_eval.results.run_folder import RunFolder
from memray_eval.types import Response, Usage
from tests.build import build_metric, build_score
from tests.runs import (
    ATTACK,
    METRICS,
    RTL,
    candidates,
    full_summary,
    hostile_records,
    plain_records,
    record,
    write_run,
)
from tests.unit.report.page import Page


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    folder = write_run(
        tmp_path_factory.mktemp("runs") / "run", [*hostile_records(), *plain_records(296)], 300
    )
    return Page(render_html(folder))


def test_no_text_of_the_run_becomes_markup_and_no_other_script_runs(page: Page) -> None:
    assert ATTACK in page.text  # the note and the event, whole, as text
    page.check_safe()
    kinds = [attrs.get("type") for attrs, _ in page.scripts]
    assert kinds == ["application/json", None, *["application/json"] * math.ceil(300 / CHUNK)]


def test_texts_reach_the_browser_unchanged(page: Page) -> None:
    (index,), chunks = page.data("index"), page.data("chunk")
    texts = [row.get("response") for chunk in chunks for row in chunk]
    assert len(texts) == len(index["rows"]) == 300
    wanted = [row.response.text for row in hostile_records() if row.response]
    assert all(text in texts for text in wanted)
    assert any(RTL in text for text in texts)
    assert f"A-{ATTACK}" in [row[0] for row in index["rows"]]


@given(
    text=st.text() | st.sampled_from([ATTACK, "</script>", "<!--<script>", "\u2028", "\x00", "]]>"])
)
def test_any_text_survives_the_script_element(text: str) -> None:
    embedded = embed([record("S1", text, candidates()[0])], METRICS)
    assert "<" not in embedded.index + "".join(embedded.chunks)
    assert json.loads(embedded.chunks[0])[0].get("response", "") == text


def test_the_first_records_are_embedded_and_the_page_says_so(tmp_path: Path) -> None:
    assert embed(plain_records(30), METRICS, most_records=12).n == 12
    assert embed(plain_records(30), METRICS, most_records=12).index.count('"S0000') == 12
    assert 1 < embed(plain_records(30), METRICS, most_characters=10_000).n < 30
    assert embed(plain_records(30), METRICS, most_characters=10).n == 1
    page = Page(render_html(write_run(tmp_path / "run", plain_records(6), n_units=25_000)))
    assert "This page holds the first 6 of 25,000 answers" in page.text


def test_numbers_that_json_cannot_say_are_null() -> None:
    plain = record("S1", "x", candidates()[0])
    broken = plain.scores[0].model_copy(update={"parts": {"share": math.inf}, "value": math.nan})
    (chunk,) = embed([plain.model_copy(update={"scores": (broken,)})], METRICS).chunks
    (score,) = json.loads(chunk, parse_constant=pytest.fail)[0]["scores"]
    assert score["parts"] == {"share": None}
    assert score["v"] is None


def test_what_was_not_scored_has_no_figure(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", plain_records(3), 3)
    failed: dict[str, Any] = {"n_scored": 0, "n_failed": 3, "coverage": 0.0}
    nothing = build_metric("safety", 3, candidate="small-t0", title="SAFETY", **failed)
    empty = dict.fromkeys(("tasks", "macro", "heat_maps", "performance", "sweeps"), ())
    bare = full_summary(3, candidates(1)).model_copy(
        update={**empty, "metrics": (nothing,), "recommendation": None}
    )
    folder.write_summary(bare, "")
    page = Page(render_html(folder))
    ids = {attrs["id"] for _, attrs in page.tags if "id" in attrs}
    assert not ids & {"matrix", "heat", "speed", "temperature", "agreement"}
    assert "Nothing was scored" in page.text
    assert "0.000" not in page.text


def measure(folder: RunFolder) -> RunCost:
    cost = RunCost()
    for table in score_table.read_score_tables(folder.records(), cost.UNITS, cost.SCORES):
        cost.add(table)
    return cost


def test_what_a_prompt_cache_held_and_saved_is_counted(tmp_path: Path) -> None:
    usage = Usage(input_tokens=400, output_tokens=9, cached_input_tokens=300)
    held, records = {"usage": usage, "saved_usd": 0.5}, []
    for plain in plain_records(6):
        scores = tuple(score.model_copy(update=held) for score in plain.scores)
        records.append(plain.model_copy(update={"scores": scores}))
    folder = write_run(tmp_path / "run", records, 6)
    (judge,) = measure(folder).judges
    assert judge["cached_input_tokens"] == 0.75 * judge["input_tokens"] > 0
    assert judge["saved_usd"] == pytest.approx(0.5 * judge["scores"])
    assert "from prompt cache" in Page(render_html(folder)).text


def test_spending_is_counted_from_the_records(tmp_path: Path) -> None:
    records = list(plain_records(30))
    spent = measure(write_run(tmp_path / "run", records, 30))
    (judge,) = spent.judges
    assert (judge["scores"], judge["cached"]) == (120, 30)
    assert judge["cost_usd"] == pytest.approx(
        sum(score.cost_usd for entry in records for score in entry.scores)
    )
    assert judge["input_tokens"] == 300 * 87  # three of 30 empathy scores failed
    assert judge["latency_s"] / judge["timed"] == pytest.approx(0.8)
    durations = sorted(entry.response.duration_s or 0.0 for entry in records[::3] if entry.response)
    judges, latencies = spent.tables()
    assert judges.rows[1][:3] == (judge["judge"], "120", "30")
    assert latencies.rows[2][:3] == (
        "small-t0, whole answer", "10", f"{(durations[4] + durations[5]) / 2:.2f}",
    )  # fmt: skip


def test_a_row_shows_the_output_before_its_thinking_was_split_off_and_who_answered() -> None:
    raw = "<think>Hm.</think>x"
    response = Response(text="x", thinking="Hm.", thinking_blocks=1, raw=raw, served_model="m-2026")
    plain = record("S1", "x", candidates()[0])
    scores = (plain.scores[0].model_copy(update={"served_model": "j-2026"}),)
    answered = plain.model_copy(update={"response": response, "scores": scores})
    (chunk,) = embed([answered], METRICS).chunks
    (row,) = json.loads(chunk)
    expected = ("x", "Hm.", raw, "m-2026")
    assert (row["response"], row["thinking"], row["raw"], row["served"]) == expected
    assert row["scores"][0]["served"] == "j-2026"


@given(low=st.floats(-1e6, 1e6), span=st.floats(1e-3, 1e6))
def test_ticks_are_few_and_within_their_range(low: float, span: float) -> None:
    marks = ticks(low, low + span)
    assert len(marks) <= 7
    assert all(low - span * 1e-6 - 1e-9 <= tick <= low + span * (1 + 1e-6) + 1e-9 for tick in marks)
    assert marks == sorted(set(marks))


def clustered_run(path: Path) -> RunFolder:
    """Twelve answers of each candidate, of three users, who differ a lot."""
    records = []
    for number, plain in enumerate(plain_records(36)):
        about = plain.sample.model_copy(
            update={"metadata": {"user": f"u{number // 3 % 3}"}, "task": "money"}
        )
        score = build_score("coherence", 0.2 + 0.3 * (number // 3 % 3) + number // 9 / 100)
        records.append(plain.model_copy(update={"sample": about, "scores": (score,)}))
    return write_run(path, records, 36)


def test_intervals_are_clustered_by_the_user_that_samples_name(tmp_path: Path) -> None:
    folder = clustered_run(tmp_path / "run")
    summary = folder.read_summary()
    intervals = measure_intervals(folder.records(), summary)
    assert intervals.cluster == "user"
    assert intervals.in_words().startswith(
        "95% intervals: Student's t with standard errors clustered by user (CR1, up to 3 clusters)"
    )
    assert intervals.in_words().endswith("With fewer than 10 clusters they are rough.")
    scores = read_scores(folder.records(), "small-t0", "user")
    values, clusters = scores.values["coherence"], number_clusters(scores.units["cluster"])
    wanted = mean_interval(values, clusters)
    plain = figures_interval(float(values.mean()), standard_error(values), 12)
    for task in (None, "money"):
        key = ("small-t0", "coherence", task)
        got = intervals.of(key, float(values.mean()), 0.01, 12, (-9.0, 9.0))
        assert got == pytest.approx(wanted)
    assert wanted.high - wanted.low > 2 * (plain.high - plain.low)
    unclustered = intervals.of(("small-t0", "empathy", None), 0.5, 0.01, 90)
    assert unclustered == figures_interval(0.5, 0.01, 90)
    assert "clustered by user" in Page(render_html(folder)).text


@pytest.mark.parametrize("groups", [1, 2, 12])
@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_clusters_that_do_not_differ_count_as_so_many_units(groups: int, value: float) -> None:
    key = ("a", "empathy", None)
    got = Intervals("session", {key: (0.0, groups)}).of(key, value, 0.0, 60)
    is_share = groups > 1 and value in (0.0, 1.0)
    assert got == (wilson_interval(int(value * groups), groups) if is_share else None)


def test_a_page_reads_the_scores_of_a_file_once_however_many_candidates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = clustered_run(tmp_path / "run")
    assert len({metric.candidate for metric in folder.read_summary().metrics}) > 1
    readers = {"_read_file": scores_module, "read_blocks": score_table}
    watched = {name: MagicMock(wraps=getattr(of, name)) for name, of in readers.items()}
    for name, watch in watched.items():
        monkeypatch.setattr(readers[name], name, watch)
    render_html(folder)
    files = sorted(file.path for file in folder.records().get_fragments())
    for watch in watched.values():
        assert sorted(call.args[0].path for call in watch.call_args_list) == files


def test_a_task_of_a_single_user_has_no_interval_and_a_run_of_one_has_plain_ones(
    tmp_path: Path,
) -> None:
    def intervals_of(users: int) -> Intervals:
        records = []
        for number, plain in enumerate(plain_records(18)):
            task = ("sleep_and_energy", "money", "money")[number // 3 % 3]
            about = {"metadata": {"user": f"u{number // 3 % users}"}, "task": task}
            sample = plain.sample.model_copy(update=about)
            records.append(plain.model_copy(update={"sample": sample}))
        folder = write_run(tmp_path / f"{users}", records, 18)
        return measure_intervals(folder.records(), folder.read_summary())

    of_task = ("small-t0", "coherence", "sleep_and_energy")  # the first of three users
    assert intervals_of(3).of(of_task, 3.0, 0.5, 6) is None
    intervals = intervals_of(1)
    assert intervals.cluster is None
    plain = figures_interval(3.0, 0.5, 6, scale=(1, 5))
    assert intervals.of(of_task, 3.0, 0.5, 6, (1, 5)) == plain
    cut = intervals.of(of_task, 4.6, 0.5, 6, (1, 5))
    assert cut.high == 5.0  # an interval ends at its scale's end


def test_bars_stand_from_the_lowest_score_to_the_highest_and_what_has_none_has_no_curve() -> None:
    drawn = distribution({"5": 4, "4": 2, "3": 0})
    assert drawn.index("3: 0") < drawn.index("4: 2") < drawn.index("5: 4")
    assert drawn.index('height="15.0"') < drawn.index('height="30.0"')
    assert "&lt;b&gt;" in distribution({"<b>": 1})
    whole, nothing = full_summary(300, candidates()), {"means": (None,) * 3, "n": (0,) * 3}
    unscored = tuple(sweep.model_copy(update=nothing) for sweep in whole.sweeps)
    assert len(list(curves(whole, Intervals()))) == 4
    assert list(curves(whole.model_copy(update={"sweeps": unscored}), Intervals())) == []


def test_a_place_that_cannot_be_written_and_a_folder_without_a_run_are_said(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", plain_records(3), 3)
    write_html(folder, str(tmp_path / "page.html"))
    assert (tmp_path / "page.html").read_text("utf-8").startswith("<!doctype html>")
    with pytest.raises(ConfigError, match=r"cannot write .*; name another place with --out"):
        write_html(folder, str(tmp_path / "none" / "page.html"))
    with pytest.raises(DataError, match=r"has no summary\.json"):
        write_html(RunFolder(str(tmp_path)), str(tmp_path / "page.html"))


def test_an_estimate_is_marked_beside_its_figure(tmp_path: Path) -> None:
    """Two of 90 scores of every metric are estimates."""
    plain = record("S1", "x", candidates()[0])
    scores = tuple(score.model_copy(update={"judge": "rules"}) for score in plain.scores)
    estimated = plain.model_copy(update={"scores": scores})
    folder = write_run(tmp_path / "run", [estimated], 1)
    mark = '<em class="mark">estimate for 2 of 90</em>'
    assert render_html(folder).count(mark) == 3 * len(METRICS)
    for row in tabulate_figures(folder.read_summary())["rows"]:
        for cell in row["cells"]:
            assert cell["is_estimate"]
            assert "estimate for 2 of 90" in cell["mark"]
    embedded = embed([estimated], METRICS)
    (row,) = json.loads(embedded.index)["rows"]
    assert {tuple(score[3:]) for score in row[-1] if len(score) > 2} == {(1,)}
    (whole,) = json.loads(embedded.chunks[0])
    marks = [score.get("estimate") for score in whole["scores"]]
    assert marks == [True] * 3 + [None] * (len(scores) - 3)


@pytest.mark.parametrize("cluster", [None, "user"])
def test_a_bucket_of_a_task_has_an_interval_if_answers_are_independent(cluster: str | None) -> None:
    summary = full_summary(300, candidates())
    tasks = [summary.tasks[0].model_copy(update={"bucket": bucket}) for bucket in (None, "0-4k")]
    name = tasks[0].metrics[0].metric
    errors = {(tasks[0].candidate, name, tasks[0].task): (0.01, 8)} if cluster else {}
    of = summary.model_copy(update={"tasks": tuple(tasks)})
    (grid,) = by_task(of, Intervals(cluster, errors))
    hints = [row[2].hint for row in grid.rows[1:] if isinstance(row[2], Cell)]
    assert ["±" in hint for hint in hints] == [True, cluster is None]


def test_fallbacks_and_estimates_by_task_stand_in_their_cells() -> None:
    summary = full_summary(300, candidates())
    task, changes = summary.tasks[0], ({"estimates": 28}, {"fallbacks": 2})
    metrics = tuple(map(lambda of, to: of.model_copy(update=to), task.metrics, changes))
    tasks = (task.model_copy(update={"metrics": metrics}),)
    (grid,) = by_task(summary.model_copy(update={"tasks": tasks}))
    first, second = grid.rows[1][2:]
    assert first.endswith(" estimate")
    assert second.endswith(" 2 of 28 by fallback")
