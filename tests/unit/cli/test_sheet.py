"""A sheet of a run's answers: drawn, labelled in a spreadsheet, and read back."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memray_eval.report.calibration_console import ScoredUnit, draw
from memray_eval.types import RULES_ON_EMPTY, RULES_ON_NO_ANSWER
from tests.build import build_record, build_sample, build_score
from tests.conftest import Call
from tests.golden.make_runs import STORED
from tests.runs import write_summarised

Row = dict[str, Any]


def calibrate(cli: Call, sheet: Path, *words: str) -> tuple[int, str, str]:
    """Calls the command for the run beside a sheet."""
    return cli("calibrate", str(sheet.parent / "run"), "--metric", "empathy", *words)


def scored(n: int, candidate: str, task: str) -> dict[str, ScoredUnit]:
    return {
        f"{candidate}{task}{i}": ScoredUnit(candidate, task, f"{i}", 1.0, "j") for i in range(n)
    }


def test_a_draw_takes_the_same_share_of_each_part() -> None:
    units = scored(60, "a", "x") | scored(30, "a", "y") | scored(30, "b", "x")
    drawn = draw(units, 40)
    assert drawn == draw(dict(reversed(units.items())), 40)
    assert set(drawn.values()) == {3.0}
    taken = [(units[unit].candidate, units[unit].task) for unit in drawn]
    assert [taken.count(part) for part in (("a", "x"), ("a", "y"), ("b", "x"))] == [20, 10, 10]
    assert sorted(draw(units, 500)) == sorted(units)
    counts = [name in draw(units, 40, seed) for seed in range(300) for name in ("ax0", "bx29")]
    assert sum(counts) / len(counts) == pytest.approx(1 / 3, abs=0.06)


@pytest.fixture
def sheet(cli: Call, tmp_path: Path) -> Path:
    shutil.copytree(STORED / "memory", tmp_path / "run")
    path = tmp_path / "sheet.csv"
    code, _, err = calibrate(cli, path, "--sheet", "--out", str(path))
    assert code == 0
    goes_on = f"memray-eval calibrate {tmp_path / 'run'} --labels {path} --metric empathy"
    assert err.splitlines()[-1].strip() == goes_on
    return path


def rows_of(path: Path) -> list[Row]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def test_a_sheet_that_pythons_csv_wrote_again_is_read(cli: Call, sheet: Path) -> None:
    """Its mark of UTF-8 and the quotes behind it are then in the first column's name."""
    with sheet.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert next(iter(rows[0])) == '\ufeff"unit_id"'
    with sheet.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(row | {"label": "3"} for row in rows)
    code, _, err = calibrate(cli, sheet, "--labels", str(sheet))
    assert (code, "error:" in err) == (0, False), err


def test_a_sheet_is_blind_and_is_not_written_over(cli: Call, sheet: Path) -> None:
    rows = rows_of(sheet)
    names = "unit_id metric scale query memory reference response label label_2 weight"
    assert [*rows[0]] == names.split()
    assert all(row["label"] == row["label_2"] == "" for row in rows)
    assert all(row["query"] and row["response"] for row in rows)
    assert "from 1 to 5" in rows[0]["scale"]
    again = calibrate(cli, sheet, "--sheet", "--out", str(sheet))
    assert (again[0], "is there already" in again[2]) == (2, True)


def test_the_only_metric_by_a_rubric_is_labelled(cli: Call, tmp_path: Path) -> None:
    shutil.copytree(STORED / "memory", run := tmp_path / "run")
    manifest = json.loads((run / "manifest.json").read_text())
    for versions, code in (({"empathy": "3", "safety": "3"}, 2), ({"empathy": "3"}, 0)):
        (run / "manifest.json").write_text(json.dumps(manifest | {"rubric_versions": versions}))
        out = tmp_path / "drawn.csv"
        assert cli("calibrate", str(run), "--sheet", "--out", str(out))[0] == code
    assert {row["metric"] for row in rows_of(out)} == {"empathy"}


@pytest.mark.parametrize("more", [["--out", "other.csv"], ["--sheet", "--labels", "other.csv"]])
def test_an_option_that_would_be_ignored_is_refused(
    cli: Call, sheet: Path, more: list[str]
) -> None:
    code, _, err = calibrate(cli, sheet, *more)
    assert (code, "give one of them" in " ".join(err.split())) == (2, True)


def save(path: Path, rows: list[Row]) -> None:
    """As a spreadsheet in Germany saves it."""
    names = ["label_2", "weight", "unit_id", "response", "label"]
    with path.open("w", encoding="utf-16", newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(names)
        for row in rows:
            writer.writerow([str(row[name]) for name in names])
            writer.writerow([""] * len(names))


def test_what_a_spreadsheet_saved_is_read(cli: Call, sheet: Path) -> None:
    rows = rows_of(sheet)
    for n, row in enumerate(rows):
        row |= {"label": f"{1 + n % 4},5", "label_2": f"{1 + n % 4}", "weight": "1,0000"}
    rows[0]["label"] = rows[0]["label_2"] = ""
    save(sheet, rows)
    code, out, err = calibrate(cli, sheet, "--json", "--labels", str(sheet))
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["n"] == report["people"]["n"] == len(rows) - 1
    assert report["people"]["figures"]["spearman"]["value"] == pytest.approx(1.0)
    assert report["judges"][0]["judge"] == "openai/local"
    (mean,) = report["adjusted"]
    assert (mean["n"], mean["n_labels"], mean["value"]) == (8, 7, None)
    for name in ("ben.csv", f"ben/{sheet.name}"):
        other = sheet.parent / name
        other.parent.mkdir(exist_ok=True)
        save(other, [row | {"label": row["label"] and "1"} for row in rows])
        words = ("--json", "--labels", str(sheet), "--labels", str(other))
        both = json.loads(calibrate(cli, sheet, *words)[1])
        assert both["people"]["raters"] == 4
        assert both["people"]["figures"]["exact"]["value"] < 1.0


def answered(folder: Path, user: Callable[[int], str], document: Callable[[int], str]) -> Path:
    """A run of 40 answers, of which a judge scored 36, and the sheet with people's labels."""
    judges = {0: RULES_ON_NO_ANSWER, 1: RULES_ON_EMPTY, 2: "string_match", 3: "string_match"}
    records = [
        build_record(
            build_sample(id=f"s{n}", metadata={"user": user(n), "document": document(n)}),
            "a",
            build_score("empathy", 1.0 + n % 5, judge=judges.get(n, "openai/gpt-4o"), error="gone"),
        )
        for n in range(40)
    ]
    write_summarised(folder / "run", records, ["empathy"])
    with (folder / "labels.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["unit_id", "label", "weight"])
        writer.writerows([f"u{of.unit_id}", 1 + n % 5, 1] for n, of in enumerate(records))
    return folder / "labels.csv"


@pytest.mark.parametrize(
    ("user", "document", "n_clusters"),
    [
        (str, str, 38),  # every answer is one of its own
        (str, lambda n: str(n % 4), 4),  # the first key that groups the samples
        (lambda n: "one", str, 38),
    ],
)
def test_rules_scores_are_not_the_judges_and_clusters_are_the_runs(
    cli: Call,
    tmp_path: Path,
    user: Callable[[int], str],
    document: Callable[[int], str],
    n_clusters: int,
) -> None:
    labels = answered(tmp_path, user, document)
    code, out, err = calibrate(cli, labels, "--labels", str(labels), "--json")
    assert code == 0, err
    report = json.loads(out)
    (judge,) = report["judges"]
    assert (judge["judge"], judge["n"], judge["n_scored"]) == ("openai/gpt-4o", 38, 36)
    assert report["n_clusters"] == n_clusters
    (mean,) = report["adjusted"]
    assert (mean["n"], mean["n_labels"]) == (40, 40)


@pytest.mark.parametrize(("second", "code"), [("", 0), ("3", 0), ("4", 2)])
def test_a_row_that_is_there_twice_keeps_its_label(
    cli: Call, sheet: Path, second: str, code: int
) -> None:
    rows = [row | {"label": "3"} for row in rows_of(sheet)]
    save(sheet, [*rows, rows[0] | {"label": second, "label_2": "2"}])
    status, out, err = calibrate(cli, sheet, "--labels", str(sheet), "--json")
    assert status == code, err
    if code:
        assert "'label' is 4, and 3 in an earlier row of this answer" in " ".join(err.split())
    else:
        assert json.loads(out)["people"]["n"] == 1


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("label", "7", "line 2: 'label' holds '7', outside 1 to 5"),
        ("label_2", "good", "line 2: 'label_2' holds 'good', not a number from 1 to 5"),
        ("weight", "much", "line 2: 'weight' holds 'much', no number above 0"),
        ("unit_id", "u12", "line 2: unit_id 'u12' is no answer of this run that empathy scored"),
    ],
)
def test_a_wrong_value_names_its_line(
    cli: Call, sheet: Path, name: str, value: str, message: str
) -> None:
    rows = rows_of(sheet)
    rows[0] |= {"label": "3"} | {name: value}
    save(sheet, rows)
    code, out, err = calibrate(cli, sheet, "--labels", str(sheet))
    assert (code, out) == (2, "")
    assert message in err
