"""Scores adjusted to people's labels: the same figures everywhere, and a reason where there are
none."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import memray_eval as me
from memray_eval.analysis.adjusted.estimators import Labelled, Verdicts, rogan_gladen
from memray_eval.analysis.adjusted.labelled_verdicts import (
    JudgeCalibration,
    LabelledVerdict,
    OwnLabels,
    read_calibrations,
    to_calibration,
    write_calibrations,
)
from memray_eval.analysis.adjusted.summaries import AdjustedRunFolder
from memray_eval.analysis.calibration import Unit
from memray_eval.cli import app
from memray_eval.errors import ConfigError, DataError
from memray_eval.report.brief import render_brief
from memray_eval.report.console import render
from memray_eval.report.html.page import render_html
from memray_eval.results.run_folder import RunFolder
from memray_eval.types import (
    RULES_ON_EMPTY,
    AdjustedFigure,
    Candidate,
    Record,
    Response,
    Sample,
    Score,
    unit_id,
)
from tests.runs import write_summarised

JUDGE = "openai/gpt-4o"
RIGHT, TONE = "semantic_correctness", "empathy"  # 0 or 1, and graded
N = 300


def records(name: str = "mine", says_right: float = 0.62) -> Iterator[Record]:
    """Answers of which the judge calls `says_right` right; empathy runs from 1 to 5."""
    candidate = Candidate(name=name, model="m")
    random = np.random.default_rng(1)
    for number, draw in enumerate(random.permutation(N)):
        sample = Sample(id=f"s{number}", query="q?", answers=("a",), suite="memory")
        yield Record(
            unit_id=unit_id(sample.id, candidate, "memory"),
            sample=sample,
            candidate=candidate,
            response=Response(text="r"),
            scores=(
                Score(
                    metric=RIGHT,
                    status="scored",
                    value=float(draw < says_right * N),
                    judge=JUDGE if number else RULES_ON_EMPTY,
                ),
                Score(metric=TONE, status="scored", value=1 + 4 * draw / (N - 1), judge=JUDGE),
            ),
        )


def run_in(path: Path, name: str = "mine", **more: Any) -> RunFolder:
    folder = write_summarised(path, records(name, **more), [RIGHT, TONE])
    judged_by = {
        f"{row.metric}/{row.candidate}": row.judges for row in folder.read_summary().metrics
    }
    rubrics = {RIGHT: "r1", TONE: "r2"}
    folder.write_manifest(folder.read_manifest() | {"rubrics": rubrics, "judged_by": judged_by})
    return folder


def verdicts(right: tuple[int, int] = (54, 60), wrong: tuple[int, int] = (12, 40)) -> list[Unit]:
    """Of the answers that people call right (wrong), how many the judge calls right, of how
    many."""
    scored = [
        (float(number < ones), label)
        for (ones, n), label in ((right, 1.0), (wrong, 0.0))
        for number in range(n)
    ]
    return [
        Unit(id=f"u{n}", people=(label,), judge=judge, judged_by=JUDGE, cluster=f"q{n}")
        for n, (judge, label) in enumerate(scored)
    ]


def calibration(metric: str = RIGHT, **changed: Any) -> JudgeCalibration:
    units = changed.pop("units", None) or verdicts()
    manifest = {"rubrics": {RIGHT: "r1", TONE: "r2"}, "package": {"version": "1"}}
    scale = (0.0, 1.0) if metric == RIGHT else (1.0, 5.0)
    created = to_calibration(units, metric, scale, scale, "labels.csv", manifest)
    return created.model_copy(update=changed)


def graded() -> list[Unit]:
    """People are half a point below the judge."""
    random = np.random.default_rng(2)
    judge = np.clip(random.normal(3.5, 0.8, 60), 1, 5)
    people = np.clip(np.round(judge - 0.5 + random.normal(0, 0.3, 60)), 1, 5)
    return [
        Unit(id=f"u{n}", people=(float(b),), judge=float(a), judged_by=JUDGE, cluster=f"q{n}")
        for n, (a, b) in enumerate(zip(judge, people, strict=True))
    ]


def saved(path: Path, *calibrations: JudgeCalibration) -> str:
    file = str(path / "calibration.json")
    write_calibrations(file, calibrations)
    return file


def adjusted(folder: RunFolder, file: str, metric: str = RIGHT) -> AdjustedFigure:
    summary = AdjustedRunFolder(folder.path, read_calibrations([file])).read_summary()
    (figure,) = (row.adjusted for row in summary.metrics if row.metric == metric and row.adjusted)
    return figure


def test_the_figure_is_the_estimators_of_these_labels(tmp_path: Path) -> None:
    folder, units = run_in(tmp_path / "run"), verdicts()
    shown = adjusted(folder, saved(tmp_path, calibration()))
    run = np.array([record.scores[0].value or 0.0 for record in records()])
    labels = Labelled(
        np.array([unit.judge or 0.0 for unit in units]),
        np.array([unit.people[0] or 0.0 for unit in units]),
        1000 + np.arange(100),
        np.ones(100),
    )
    direct = rogan_gladen(Verdicts(run, np.arange(N)), labels)
    assert (shown.value, shown.low, shown.high) == pytest.approx((direct.value, *direct.interval))
    assert (shown.method, shown.n_labels, shown.raw) == ("Rogan-Gladen", 100, pytest.approx(0.62))
    assert (shown.sensitivity, shown.specificity) == (pytest.approx(0.9), pytest.approx(0.7))
    first, second = shown.needed
    assert (first.more, second.more) == (100, 300)
    assert first.half_width > second.half_width > (shown.least_half_width or 0.0) > 0


def test_a_table_of_a_judges_scores_adjusts_as_its_verdicts_do(tmp_path: Path) -> None:
    folder, table = run_in(tmp_path / "run"), tmp_path / "scores.csv"
    rows = [f"{RIGHT};{unit.people[0]};{JUDGE};{unit.judge};{unit.cluster}" for unit in verdicts()]
    head = "metric;label;judge;judge_score;cluster"
    table.write_text("\n".join([head, *rows, f"{RIGHT};1;{JUDGE};;x", f"{RIGHT};;{JUDGE};1;x"]))
    shown = adjusted(folder, str(table))
    known = adjusted(folder, saved(tmp_path, calibration()))
    assert (shown.value, shown.low, shown.high) == (known.value, known.low, known.high)
    table.write_text("\n".join([head, *(row.replace(JUDGE, "openai/other") for row in rows)]))
    assert "verdicts by openai/other" in adjusted(folder, str(table)).refused
    table.write_text("\n".join([head, *rows, f"{RIGHT};1;{JUDGE};7;x"]))
    assert adjusted(folder, str(table)).refused == "7 in row 101 is off the scale 0 to 1"


def test_labels_of_units_that_are_not_there_are_a_note(tmp_path: Path) -> None:
    folder, table = run_in(tmp_path / "run"), tmp_path / "labels.csv"
    units = [record.unit_id for record in records()][:20]
    rows = [f"{unit},{RIGHT},{n % 2}," for n, unit in enumerate(units)]
    rows += [f"gone,{RIGHT},1,{folder.run_id}", f"of-another-run,{RIGHT},1,other"]
    table.write_text("\n".join(["unit_id,metric,label,run_id", *rows]))
    summary = AdjustedRunFolder(folder.path, read_calibrations([str(table)])).read_summary()
    (note,) = summary.notes
    assert note.startswith("labels.csv: 1 of its 21 labels are of no unit that is scored here")
    (figure,) = (row.adjusted for row in summary.metrics if row.adjusted is not None)
    assert figure.n_labels == 20


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (f"{RIGHT},1,,1", "row 1: judge is ''"),
        (f"{RIGHT},1,{JUDGE},much", "row 1: judge_score is 'much'"),
        (f"{RIGHT},much,{JUDGE},1", "row 1: label is 'much'"),
        (f"{RIGHT},,{JUDGE},1", "holds no label"),
    ],
)
def test_a_table_of_scores_that_is_none(tmp_path: Path, row: str, message: str) -> None:
    table = tmp_path / "scores.csv"
    table.write_text(f"metric,label,judge,judge_score\n{row}\n")
    with pytest.raises(DataError, match=message):
        read_calibrations([str(table)])


def test_console_page_json_csv_parquet_and_python_show_the_same(tmp_path: Path) -> None:
    plain = run_in(tmp_path / "run")
    file = saved(tmp_path, calibration(), calibration(TONE, units=graded()))
    folder = AdjustedRunFolder(plain.path, read_calibrations([file]))
    summary = folder.read_summary()
    by_metric = {metric.metric: metric.adjusted or AdjustedFigure() for metric in summary.metrics}
    assert by_metric[TONE].method == "PPI++"
    page, screen, text = render_html(folder), render_brief(summary, "run"), render(summary)
    words = [screen, text, page]
    words = [" ".join(text.split()) for text in words]
    for metric, digits in ((RIGHT, 3), (TONE, 2)):
        parsed = by_metric[metric]
        shown = f"{parsed.value:.{digits}f} [{parsed.low:.{digits}f}, {parsed.high:.{digits}f}]"
        assert all(f"{shown} adjusted" in text for text in words[:2])
        assert f'data-adjusted="{shown}"' in page
        assert f"raw; by {parsed.n_labels} labels of labels.csv ({parsed.method}" in words[0]
    options = ["--csv", str(tmp_path / "a.csv"), "--parquet", str(tmp_path / "a.parquet")]
    options += ["--evaluation", str(tmp_path / "a.json"), "--json"]
    done = CliRunner().invoke(app, ["report", plain.path, "--calibration", file, *options])
    assert done.exit_code == 0, done.output
    exported = json.loads((tmp_path / "a.json").read_text())["summary"]["metrics"]
    for parsed in exported:
        assert parsed["adjusted"] == by_metric[parsed["metric"]].model_dump(mode="json")
    with (tmp_path / "a.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    for row in (*rows, *pq.read_table(tmp_path / "a.parquet").to_pylist()):
        figure = by_metric[row["metric"]]
        columns = [float(row[name]) for name in ("adjusted", "adjusted_low", "adjusted_high")]
        assert columns == pytest.approx([figure.value, figure.low, figure.high])
    for row in me.Run(folder).table().to_pylist():
        assert row["adjusted"] == by_metric[row["metric"]].value
        assert row["adjusted_high"] == by_metric[row["metric"]].high
    assert plain.read_summary().metrics[0].adjusted is None, "the run's own summary stays"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"judge": "openai/gpt-4o-mini"}, "verdicts by openai/gpt-4o-mini, and openai/gpt-4o gave"),
        ({"judge": "rules", "version": "memray-eval 1"}, "verdicts by rules, and openai/gpt-4o"),
        ({"version": "2024-08-06"}, "in its version 2024-08-06"),
        ({"scale": (1.0, 5.0)}, "the labels are on a scale of 1 to 5"),
        ({"rubric": "other"}, "by the rubric other, and semantic_correctness has r1"),
        ({"units": verdicts((36, 60), (22, 40))}, "is 0.05 by these labels, below 0.1"),
        ({"units": verdicts((54, 60), (0, 0))}, "all 60 labels are the same"),
        ({"units": verdicts((4, 5), (1, 3))}, "8 labels of 8 clusters; 10 of 4 are the fewest"),
    ],
)
def test_labels_that_do_not_hold_are_refused_with_why(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    folder = run_in(tmp_path / "run")
    file = saved(tmp_path, calibration(**changed))
    figure = adjusted(folder, file)
    assert message in figure.refused
    assert (figure.value, figure.low, figure.method) == (None, None, "")
    shown = CliRunner().invoke(app, ["report", folder.path, "--calibration", file])
    assert shown.exit_code == 0
    assert "not adjusted by labels.csv" in " ".join(shown.output.split())


def test_labels_of_another_metric_are_an_error(tmp_path: Path) -> None:
    folder = run_in(tmp_path / "run")
    file = saved(tmp_path, calibration(metric="safety"))
    with pytest.raises(
        ConfigError, match=r"labels\.csv is of safety, which this run does not score"
    ):
        AdjustedRunFolder(folder.path, read_calibrations([file])).read_summary()


def test_the_judge_of_most_verdicts_is_the_calibrated_one(tmp_path: Path) -> None:
    units = verdicts()
    units[0] = units[0].model_copy(update={"judged_by": "string_match"})
    units[1] = units[1].model_copy(update={"judged_by": RULES_ON_EMPTY})
    units[2] = units[2].model_copy(update={"judge": None, "judged_by": ""})
    fitted = calibration(units=units)
    assert (fitted.judge, len(fitted.verdicts), fitted.n_unscored) == (JUDGE, 98, 2)
    kept = to_calibration(graded(), TONE, (1, 5), (0, 4), "x", {})
    assert kept.verdicts[0].people == (graded()[0].people[0] or 0.0) + 1


def own_labels(path: Path, name: str, weight: bool = True, suffix: str = "csv", **more: Any) -> str:
    """Labels of the run's own answers: every fifth that the judge calls right, every second of the
    others; people call one in three of the first wrong."""
    rows = []
    for number, record in enumerate(records(name, **more)):
        is_right = (record.scores[0].value or 0.0) > 0
        every = 5 if is_right else 2
        if number % every == 0:
            label = 0 if not is_right or number % 3 == 0 else 1
            row = {"unit_id": record.unit_id, "metric": RIGHT, "label": label, "rater": "r"}
            rows.append(row | ({"weight": every} if weight else {}))
    rows.append(rows[0] | {"label": "" if suffix == "csv" else None})  # taken back
    file = path / f"own-{name}.{suffix}"
    if suffix == "csv":
        with file.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_labels_of_the_runs_own_answers_count_with_their_weights(
    tmp_path: Path, suffix: str
) -> None:
    folder = run_in(tmp_path / "run")
    weighted = adjusted(folder, own_labels(tmp_path, "mine", suffix=suffix))
    assert (weighted.method, weighted.is_own) == ("PPI++", True)
    assert weighted.value == pytest.approx(0.62 * 2 / 3, abs=0.06)
    assert (weighted.low or 0) < 0.62 * 2 / 3 < (weighted.high or 0)
    plain = adjusted(folder, own_labels(tmp_path, "mine", weight=False))
    assert plain.value != pytest.approx(weighted.value or 0.0, abs=1e-4)


def test_a_column_a_person_and_the_metric_named_with_the_file(tmp_path: Path) -> None:
    """As `view --label` writes them."""
    folder, rows = run_in(tmp_path / "run"), ["unit_id,query,human,human2,rater,weight"]
    for number, record in enumerate(records()):
        vote = int((record.scores[0].value or 0.0) > 0)
        rows += [f"{record.unit_id},q,{vote},{vote if number % 2 else ''},r,3"] * (number % 3 == 0)
    file = tmp_path / "labels.csv"
    file.write_text("\n".join(rows) + "\n")
    figure = adjusted(folder, f"{RIGHT}={file}")
    assert (figure.n_labels, figure.is_own, figure.labelled) == (100, True, "labels.csv")
    assert figure.value == pytest.approx(0.62)
    rows += ["gone,q,1,,r,3", "gone2,q,1,,r,3"]
    file.write_text("\n".join(rows) + "\n")
    assert adjusted(folder, f"{RIGHT}={file}") == figure
    opened = AdjustedRunFolder(folder.path, read_calibrations([f"{RIGHT}={file}"]))
    assert "2 of its" in opened.read_summary().notes[-1]


def test_labels_of_other_answers_are_refused_unless_others_hold(tmp_path: Path) -> None:
    folder = run_in(tmp_path / "run")
    theirs, ours = own_labels(tmp_path, "yours"), own_labels(tmp_path, "mine")
    assert (
        "none of its labels is of an answer that is scored here" in adjusted(folder, theirs).refused
    )
    both = AdjustedRunFolder(folder.path, read_calibrations([theirs, ours])).read_summary()
    (figure,) = (metric.adjusted for metric in both.metrics if metric.metric == RIGHT)
    assert figure == adjusted(folder, ours)


def test_two_runs_with_labels_of_their_own_are_compared(tmp_path: Path) -> None:
    a, b = run_in(tmp_path / "a", "mine"), run_in(tmp_path / "b", "yours", says_right=0.8)
    files = [own_labels(tmp_path, "mine"), own_labels(tmp_path, "yours", says_right=0.8)]
    options = [option for file in files for option in ("--calibration", file)]
    done = CliRunner().invoke(app, ["compare", a.path, b.path, *options, "--json"])
    assert done.exit_code == 0, done.output
    (difference,) = json.loads(done.output)["adjusted"]
    assert (difference["method"], difference["refused"]) == ("PPI++", "")
    assert difference["difference"] == pytest.approx(difference["mean_b"] - difference["mean_a"])
    assert difference["low"] < 0.18 * 2 / 3 < difference["high"]
    alone = CliRunner().invoke(app, ["compare", a.path, b.path, *options[:2]])
    assert "none of its labels is of an answer" in alone.output


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.json", "{", "x.json"),
        (
            "x.json",
            '{"format": "other"}',
            "is no file of `memray-eval calibrate LABELLED --save FILE`",
        ),
        ("x.json", "[1]", "must be a list of objects"),
        ("x.csv", "id,label\n1,1\n", "has no column 'unit_id'"),
        ("x.csv", "unit_id,metric\na,b\n", "has no column 'label'"),
        ("x.csv", "unit_id,human,weight\na,1,1\n", "write --calibration METRIC="),
        ("x.csv", "unit_id,metric,label\na,b,\n", "holds no label"),
        ("x.csv", "unit_id,metric,label\na,b,much\n", "row 1: label is 'much'"),
        ("x.csv", "unit_id,metric,label,weight\na,b,1,-2\n", "row 1: weight is '-2'"),
        ("x.csv", "unit_id,metric,label,weight\na,b,1,nan\n", "row 1: weight is 'nan'"),
        ("x.txt", "hello", "not a kind of file that is read"),
    ],
)
def test_files_that_are_none_say_what_is_wrong(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises((ConfigError, DataError)) as raised:
        read_calibrations([str(tmp_path / name)])
    assert message in str(raised.value)
    with pytest.raises(DataError, match="cannot be read"):
        read_calibrations([str(tmp_path / "missing.json")])


def test_calibrations_survive_their_file(tmp_path: Path) -> None:
    fitted = calibration(TONE, units=graded())
    (read,) = read_calibrations([saved(tmp_path, fitted)])
    assert read == fitted
    assert isinstance(read, JudgeCalibration)
    assert not isinstance(read, OwnLabels)
    assert all(isinstance(verdict, LabelledVerdict) for verdict in read.verdicts)


def compared(path: Path, files: list[str], *more: str) -> str:
    a, b = run_in(path / "a"), run_in(path / "b", says_right=0.8)
    options = [option for file in files for option in ("--calibration", file)]
    done = CliRunner().invoke(app, ["compare", a.path, b.path, *options, *more])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_comparison_has_adjusted_differences(tmp_path: Path) -> None:
    file = saved(tmp_path, calibration())
    differences = json.loads(compared(tmp_path, [file], "--json"))["adjusted"]
    assert [difference["metric"] for difference in differences] == [RIGHT]
    (difference,) = differences
    assert difference["difference"] == pytest.approx(0.18 / 0.6)
    assert difference["mean_b"] - difference["mean_a"] == pytest.approx(difference["difference"])
    assert 0 < difference["low"] < difference["difference"] < difference["high"]
    page = tmp_path / "page.html"
    text = compared(tmp_path, [file], "--html", str(page))
    row = f"[{difference['low']:+.4f}, {difference['high']:+.4f}]"
    assert row in text
    assert row in page.read_text()


def test_graded_labels_of_other_answers_tell_no_difference(tmp_path: Path) -> None:
    text = compared(tmp_path, [saved(tmp_path, calibration(TONE, units=graded()))])
    assert "labels of other answers move both sides alike" in text
