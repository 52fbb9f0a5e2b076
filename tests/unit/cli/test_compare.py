"""memray-eval compare: which folders and candidates it takes, what it prints, messages and exit
codes."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from memray_eval.analysis.calibration import CalibrationReport, Coefficient, JudgeFigures
from tests.build import build_folder, build_record, build_sample, build_score
from tests.conftest import Call

DIGEST = "0123456789abcdef"  # of a rubric


def write_run(
    folder: Path,
    values: dict[str, float],
    n: int = 6,
    users: int = 0,
    of_unit: Sequence[float] = (),
    metrics: Sequence[str] = ("empathy",),
    **keys: Any,
) -> str:
    """A run with a candidate for each of `values`, whose even units score that and whose odd units
    0 (or as `of_unit` says), of so many users; `keys` are of its manifest."""
    records = [
        build_record(
            build_sample(id=str(i), suite="memory", metadata={"user": i % users} if users else {}),
            f"answer {i}",
            *(
                build_score(metric, of_unit[i] if of_unit else 0.0 if i % 2 else value)
                for metric in metrics
            ),
            candidate=name,
            unit_id=f"{i}/{name}",
        )
        for name, value in values.items()
        for i in range(n)
    ]
    manifest = {"status": "finished", "dataset": {"path": "d", "fingerprint": "f"}}
    return build_folder(folder, records, manifest | keys).path


@pytest.fixture
def call(cli: Call) -> Call:
    return lambda *words: cli("compare", *words)


@pytest.fixture
def runs(tmp_path: Path) -> tuple[str, str]:
    return write_run(tmp_path / "one", {"small": 0.4}), write_run(
        tmp_path / "two", {"small": 0.8, "llama3:8b": 0.2}
    )


def test_two_runs_and_a_candidate_of_several(call: Call, runs: tuple[str, str]) -> None:
    code, out, err = call(runs[0], f"{runs[1]}:llama3:8b", f"{runs[1]}:small", "--json")
    assert (code, err) == (0, "")
    comparison = json.loads(out)
    assert (comparison["baseline"], comparison["others"]) == ("one", ["two:llama3:8b", "two:small"])
    assert [metric["paired"]["difference"] for metric in comparison["metrics"]] == pytest.approx(
        [-0.1, 0.2]
    )
    code, out, _ = call(runs[0], f"{runs[1]}:small", "--flips", "3", "--bootstrap")
    assert code == 0
    assert "B: two:small" in out
    changed = "  0.4 -> 0.8  0\n      asked: q\n      A: answer 0\n      B: answer 0\n"
    assert f"empathy, answers that changed most:\n{changed}" in out
    assert "bootstrap (BCa, expanded)" in out


def test_gates_print_what_came_of_them_and_set_the_exit_code(
    call: Call, runs: tuple[str, str]
) -> None:
    words = (runs[0], f"{runs[1]}:llama3:8b", "--fail-if", "empathy > 1", "--fail-if")
    code, out, err = call(*words, "empathy.difference < -0.05")
    assert code == 1
    assert "B: two:llama3:8b" in out
    differs = "two:llama3:8b differs by -0.1000 on 6 answers, 95% interval -0.2150 to 0.0150"
    assert err == (
        f"PASS: no part of the interval of empathy is > 1: {differs}\n"
        f"FAIL: empathy.difference is < -0.05: {differs}\n"
    )
    code, _, err = call(*words, "empathy drops")
    shown = "so many answers show one of 0.16 or more (80% of the time)"
    assert (code, err.splitlines()[1]) == (
        0,
        f"PASS: no drop of empathy is shown: {differs}; {shown}",
    )
    code, _, err = call(*words, "empathy < -0.05")
    assert (code, err.splitlines()[1].partition(":")[0]) == (5, "INCONCLUSIVE")
    assert call(*words, "empathy < -0.05", "--fail-if", "empathy.low < -0.2")[0] == 1
    comparison = json.loads(call(*words, "empathy.low < -0.2", "--json")[1])
    assert comparison["failed_gates"] == [f"empathy.low is < -0.2: {differs}"]
    assert [of["outcome"] for of in comparison["gates"]] == ["PASS", "FAIL"]


@pytest.mark.parametrize(
    ("policy", "code", "outcomes"),
    [  # empathy is 0.1 lower, between -0.215 and 0.015
        ("gates: [{metric: empathy, margin: 0.3}]", 0, ["PASS"]),
        ("gates: [{metric: empathy, margin: 0.1}]", 5, ["INCONCLUSIVE"]),
        ("gates: [{metric: empathy, margin: 0.1, tier: may}]", 0, ["INCONCLUSIVE (may)"]),
        ("gates: [{metric: empathy, margin: 0.3, least_n: 7}]", 5, ["INCONCLUSIVE"]),
        ("gates: [{metric: empathy, margin: 0.3, least_n: 6, tier: must}]", 0, ["PASS"]),
    ],
)
def test_a_policy_gates_by_margin_tier_and_least_n(
    call: Call, runs: tuple[str, str], tmp_path: Path, policy: str, code: int, outcomes: list[str]
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(policy)
    ended, _, err = call(runs[0], f"{runs[1]}:llama3:8b", "--policy", str(file))
    assert (ended, [line.partition(": ")[0] for line in err.splitlines()]) == (code, outcomes)


def test_a_judge_that_was_not_calibrated_gates_only_if_that_is_allowed(
    call: Call, tmp_path: Path
) -> None:
    keys = {"rubrics": {"empathy": DIGEST}, "judged_by": {"empathy/small": {"openai/m": 6}}}
    a, b = (write_run(tmp_path / name, {"small": 0.4}, **keys) for name in ("a", "b"))
    figures = {"kappa": Coefficient(value=0.7, low=0.5, high=0.9)}
    judge = JudgeFigures(judge="openai/m", n=19, n_scored=19, coverage=1.0, figures=figures,
                         curve_by="score", curve=(), cost_usd=0.0, rubric=DIGEST)  # fmt: skip
    report = CalibrationReport(
        labelled="l.csv", metric="empathy", scale=(1, 5), human_scale=(1, 5), n=9, n_clusters=9,
        judges=(judge,), people=None, suggestion=None,
    )  # fmt: skip
    by_auto = {"judge": "auto", "judged_by": "openai/m"}
    for name, update in (("good", {}), ("auto", by_auto), ("bad", {"coverage": 0.5})):
        of_judge = report.model_copy(update={"judges": (judge.model_copy(update=update),)})
        (tmp_path / f"{name}.json").write_text(of_judge.model_dump_json())
    for more, code, message in [
        ("", 5, "openai/m was not calibrated on empathy's rubric (digest 0123456789abcdef)"),
        ("calibrations: [bad.json]", 5, "was not calibrated"),
        ("calibrations: [good.json]", 0, "PASS: no part of the interval of empathy is < -1"),
        ("calibrations: [auto.json]", 0, "PASS: no part of the interval of empathy is < -1"),
        ("allow_uncalibrated: true", 0, "PASS: no part of the interval of empathy is < -1"),
    ]:
        (tmp_path / "p.yaml").write_text(f"gates: [{{metric: empathy, margin: 1}}]\n{more}\n")
        ended, _, err = call(a, b, "--policy", f"{tmp_path}/p.yaml")
        assert (ended, message in err, err.count("\n")) == (code, True, 1), (more, err)
        gate = ("--fail-if", "empathy < -1", "--policy", f"{tmp_path}/p.yaml")
        outcomes = ["PASS" if code == 0 else "INCONCLUSIVE"] * 2
        ended, _, err = call(a, b, *gate)
        assert (ended, [line.split(":")[0] for line in err.splitlines()]) == (code, outcomes)
    for more, code in (((), 5), (("--allow-uncalibrated",), 0)):
        assert call(a, b, "--fail-if", "empathy < -1", *more)[0] == code


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (
            "gates: [{metric: humour, margin: 1}]",
            "no metric 'humour' in common; there are: empathy",
        ),
        ("gates: [{metric: empathy, margn: 1}]", "margn: no such key; did you mean 'margin'?"),
        ("gates: [{metric: empathy, margin: .nan}]", "margin: must be a finite number, not nan"),
        ("gates: [{metric: empathy, margin: -1}]", "margin: must be 0 or more, not -1"),
        ("gates: [{metric: empathy, margin: 1, tier: mst}]", "tier: must be 'must' or 'may'; did"),
        ("gates: []", "gates: at least 1 must be named"),
        ("- 1", "must be a mapping of keys"),
        ("", "must be a mapping of keys, not empty"),
        ("gates: [", "cannot be read"),
        ("gates: [{metric: empathy, margin: 1}]\ncalibrations: [no.json]", "is not what"),
    ],
)
def test_a_policy_that_is_none_is_one_line(
    call: Call, runs: tuple[str, str], tmp_path: Path, policy: str, message: str
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(policy)
    code, out, err = call(runs[0], f"{runs[1]}:small", "--policy", str(file))
    assert (code, out, message in err, err.count("\n")) == (2, "", True, 1), err


def test_two_runs_of_one_candidate_say_what_their_number_carries(
    call: Call, tmp_path: Path
) -> None:
    chance = random.Random(3)
    for name in ("a", "b"):
        values = [round(chance.gauss(3, 0.5), 2) for _ in range(40)]
        write_run(tmp_path / name, {"small": 0.0}, n=40, of_unit=values)
    a, b = (str(tmp_path / name) for name in ("a", "b"))
    (row,) = json.loads(call(a, b, "--aa", "--json")[1])["noise"]
    assert row["n"] == 40
    assert row["false_alarms"] == pytest.approx(0.025, abs=0.01)
    # (t of 0.975 + t of 0.8) x sd / sqrt(n), of differences with a sd of about 0.7
    assert row["margin"] == pytest.approx(2.87 * 0.7 / 40**0.5, rel=0.25)
    out = " ".join(call(a, b, "--aa")[1].split())
    assert "A/A n false alarms margin empathy 40 2." in out
    assert "noise" not in json.loads(call(a, b, "--json")[1])
    code, _, err = call(a, b, b, "--aa")
    assert (code, "--aa takes two runs" in err) == (2, True)


def test_markdown_has_head_table_and_the_three_worst_answers(call: Call, tmp_path: Path) -> None:
    values = [1.0, 0.2, 0.9, 0.1, 0.3, 1.0]
    a = write_run(tmp_path / "a", {"small": 1.0}, of_unit=[1.0] * 6)
    b = write_run(tmp_path / "b", {"small": 1.0}, of_unit=values)
    file = tmp_path / "c.md"
    code, _, err = call(a, b, "--md", str(file), "--fail-if", "empathy drops")
    assert (code, err.splitlines()[0]) == (0, str(file))
    text = file.read_text("utf-8")
    assert text.startswith("No difference is shown between a and b on empathy")
    assert "| metric | n | A | B |" in text
    assert "\n- PASS: no drop of empathy is shown: b differs by" in text
    worst = [line for line in text.splitlines() if line.startswith("###")]
    assert worst == [
        "### empathy 1 to 0.1: 3",
        "### empathy 1 to 0.2: 1",
        "### empathy 1 to 0.3: 4",
    ]
    assert "\nB:\n\n    answer 3\n" in text


def test_a_side_without_the_metric_is_inconclusive_and_shows_its_own(
    call: Call, tmp_path: Path
) -> None:
    of = {"a": ("coherence", "empathy"), "b": ("coherence", "empathy"), "c": ("empathy",), "d": ()}
    paths = {
        name: write_run(tmp_path / name, {"small": 1.0}, of_unit=[1.0, 0.5], n=2, metrics=metrics)
        for name, metrics in of.items()
    }
    file = tmp_path / "c.md"
    gate = ("--fail-if", "coherence.difference < -9", "--allow-uncalibrated")
    code, _, err = call(*paths.values(), *gate, "--md", str(file))
    assert (code, [line.split(":")[0] for line in err.splitlines()[1:]]) == (
        5,
        ["PASS", "INCONCLUSIVE", "INCONCLUSIVE"],
    ), err
    assert "c has no coherence to compare" in err
    heads = [line for line in file.read_text("utf-8").splitlines() if line.startswith("##")]
    assert [head for head in heads if head.startswith("## ")] == [
        f"## {name} ({name.upper()}) against a (A)" for name in "bcd"
    ]
    assert [head.split()[1] for head in heads if head.startswith("###")] == [
        *["coherence"] * 2,
        *["empathy"] * 2,
    ]


def test_junit_has_a_case_a_gate(call: Call, runs: tuple[str, str], tmp_path: Path) -> None:
    file = tmp_path / "c.xml"
    (tmp_path / "p.yaml").write_text("gates: [{metric: empathy, margin: 0.1, tier: may}]")
    gates = ("empathy > 1", "empathy.low < -0.2", "empathy < -0.05")
    words = [word for gate in gates for word in ("--fail-if", gate)]
    code, _, err = call(
        runs[0], f"{runs[1]}:llama3:8b", *words, "--policy", f"{tmp_path}/p.yaml", "--junit",
        str(file),
    )  # fmt: skip
    assert (code, err.splitlines()[0]) == (1, str(file))
    suite = ElementTree.parse(file).getroot()
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "4", "failures": "1", "errors": "1", "skipped": "1"}
    assert [[of.tag for of in case] for case in suite] == [[], ["failure"], ["error"], ["skipped"]]
    names = [case.get("name") for case in suite]
    assert names == [*gates, "empathy may fall by 0.1"]
    failed = "FAIL: empathy.low is < -0.2: two:llama3:8b differs by -0.1000"
    assert (suite[1][0].get("message") or "").startswith(failed)
    code, _, err = call(runs[0], f"{runs[1]}:small", "--junit", str(file))
    assert (code, "name them with --fail-if or --policy" in err) == (2, True)


def test_the_page_lists_changed_units_and_the_text_stays_short(
    call: Call, runs: tuple[str, str], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    code, out, err = call(runs[0], f"{runs[1]}:small", "--html", str(page))
    assert (code, err) == (0, f"{page}\n")
    assert "changed most" not in out
    text = page.read_text("utf-8")
    assert "3 of 3 answers that changed most" in text
    assert "(not in the records)" not in text
    assert call(runs[0], f"{runs[1]}:small", "--html", str(page), "--flips", "0")[0] == 0
    assert "changed most" not in page.read_text("utf-8")
    code, _, err = call(runs[0], f"{runs[1]}:small", "--html", str(tmp_path / "none" / "page.html"))
    assert code == 2
    assert "name another place with --html" in err


def test_units_are_clustered_by_the_user_that_samples_name_unless_told(
    call: Call, tmp_path: Path
) -> None:
    first, two = (
        write_run(tmp_path / name, {"small": value}, users=3)
        for name, value in (("one", 0.4), ("two", 0.8))
    )
    assert json.loads(call(first, two, "--json")[1])["cluster"] == "user"
    assert json.loads(call(first, two, "--json", "--cluster", "none")[1])["cluster"] is None
    comparison = json.loads(call(first, two, "--json", "--cluster", "sample_id")[1])
    expected = ("sample_id", 6)
    assert (comparison["cluster"], comparison["metrics"][0]["paired"]["n_clusters"]) == expected


def test_bad_input_is_a_message_and_exit_code_2(
    call: Call, runs: tuple[str, str], tmp_path: Path
) -> None:
    first, two = runs
    for name, manifest in (("broken", "{"), ("listed", "[1]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(manifest)
    damaged = write_run(tmp_path / "damaged", {"small": 0.5})
    for part in (tmp_path / "damaged" / "records").iterdir():
        part.write_bytes(b"PAR1 cut off")
    small = f"{two}:small"
    for words, message in [
        ((first,), "takes two or more run folders"),
        ((first, str(tmp_path)), f"{tmp_path} has no manifest.json; give the folder of a run"),
        ((first, f"{tmp_path}:small"), "has no manifest.json"),
        ((first, f"{tmp_path}/broken"), "manifest.json is not JSON"),
        ((first, f"{tmp_path}/listed"), "manifest.json is not JSON of a run"),
        ((first, damaged), f"the records of {damaged} cannot be read"),
        ((first, two), f"{two} has several candidates: llama3:8b, small; pick one with"),
        ((first, f"{two}:large"), "no candidate 'large'; there are: llama3:8b, small"),
        ((first, first), "is given twice"),
        ((first, small, "--fail-if", "empathy is bad"), "cannot read the gate 'empathy is bad'"),
        ((first, small, "--metrics", "humour"), "no metric 'humour' in common; there are: empathy"),
    ]:
        code, out, err = call(*words)
        assert (code, out) == (2, ""), words
        assert message in err


def test_runs_of_one_name_go_by_their_paths(call: Call, tmp_path: Path) -> None:
    paths = [write_run(tmp_path / parent / "run", {"small": 0.5}) for parent in ("x", "y")]
    assert json.loads(call(*paths, "--json")[1])["others"] == [paths[1]]
