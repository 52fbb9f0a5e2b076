"""memray-eval calibrate: its table and JSON from fake judges, and its messages and exit codes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from memray_eval.analysis.calibration import read_calibrated
from memray_eval.api.calibrating import LabelledFile, compare_judges
from memray_eval.datasets.labels import LabelledResponse
from memray_eval.errors import ConfigError
from memray_eval.report.calibration_console import render
from memray_eval.types import Record, Score
from tests.build import build_record, build_sample, build_score
from tests.conftest import Call

HUMANS = [(float(n % 2), float(n % 2 if n % 7 else 1 - n % 2)) for n in range(40)]
ROWS = [
    LabelledResponse(
        id=f"row-{n}",
        fields={"id": f"row-{n}", "query": f"q{n}", "response": "r"},
        people=people,
        cluster=f"q{n // 2}",
    )
    for n, people in enumerate(HUMANS)
]
METRIC = "semantic_correctness"
FILE = LabelledFile(Path("file.json"), ROWS, (0, 1), METRIC, METRIC, (0, 1))
MAPPED = "response=a,query=q"


def fake(judge: str) -> tuple[Iterator[Record], str]:
    return verdicts_of(judge), ""


def verdicts_of(judge: str) -> Iterator[Record]:
    """`right` says what the first person said, and wavers every fourth time; `deaf` gives no
    verdict on anything."""
    for n, row in enumerate(of.fields for of in ROWS):
        value = float(n % 2)
        values = (value, value if n % 4 else 1 - value, None)
        jury = [{"judge": judge, "value": vote} for vote in values]
        judgment = json.dumps({"verdict": "-", "confidence": 0.9, "jury": jury})
        score = Score(metric=METRIC, status="abstained", judge=judge)
        if judge == "right":
            score = build_score(METRIC, value, judgment=judgment, judge=judge, cost_usd=0.01)
        sample = build_sample(id=row["id"], query=row["query"])
        yield build_record(sample, "r", build_score("another", 0.5), score)


def test_judges_side_by_side() -> None:
    report = compare_judges(FILE, ["right", "deaf"], fake)
    right, deaf = report.judges
    assert (report.n, report.n_clusters, right.coverage, deaf.coverage) == (40, 20, 1.0, 0.0)
    assert right.figures["flip_rate"].value == 0.25
    assert right.curve_by == "confidence"
    assert right.cost_usd == pytest.approx(0.4)
    assert deaf.figures["exact"].value is None
    assert report.people.figures["exact"].value == pytest.approx(34 / 40)
    assert report.suggestion.judge == "right"
    text = render(report)
    assert "40 labelled responses, 20 clusters" in text
    lines = text.splitlines()
    assert lines[1].startswith("right may be used: weighted kappa 0.")
    assert lines[2].startswith(
        "deaf is not to be used: weighted kappa -, 0.0% scored; its interval"
    )
    assert lines[7].split() == "scored 40 of 40 (100.0%) 0 of 40 (0.0%) 40".split()
    assert "Suggested: right, the highest weighted kappa" in text
    assert "nan" not in text.lower()


def test_one_judge_needs_no_suggestion_and_auto_says_whom_it_took(tmp_path: Path) -> None:
    report = compare_judges(FILE, ["auto"], lambda _: fake("right"))
    assert report.suggestion is None
    assert render(report).splitlines()[1].startswith("auto (right) may be used: weighted kappa 0.")
    file = tmp_path / "report.json"
    file.write_text(report.model_dump_json())
    assert [*read_calibrated(file)] == [(METRIC, "right", "")]
    with pytest.raises(ConfigError, match="--judge names none"):
        compare_judges(FILE, [], fake)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "no metric: name it with --metric"),
        ("", "memray-eval calibrate RUN --labels "),
        ("--preset begin", "--preset was withdrawn: write the columns with --map"),
        ("--metric nonesuch", "no metric 'nonesuch'; there are:"),
        (f"--metric {METRIC}", "no column for response"),
        (f"--metric {METRIC} --map {MAPPED}", "no column for human"),
        (f"--metric {METRIC} --map {MAPPED},human=scor", "did you mean 'score'? There are: q, a"),
        (f"--metric {METRIC} --map {MAPPED},human=score", "'score' holds 4, outside 0 to 1; set"),
        (f"--metric {METRIC} --map {MAPPED},human=a", "'a' holds 'Ada', not a number"),
        (f"--metric {METRIC} --human-scale 5,1", "write LOW,HIGH"),
        (f"--metric {METRIC} --label yes", "write WORD=NUMBER"),
    ],
)
def test_wrong_usage_is_code_2(cli: Call, words: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "labelled.json"
    path.write_text(json.dumps([{"q": "Who?", "a": "Ada", "score": 4}]))
    code, out, err = cli("calibrate", str(path), *words.split())
    assert (code, out) == (2, "")
    assert message in err


def test_scores_that_exist_are_compared_without_a_call(cli: Call, tmp_path: Path) -> None:
    rows = [f"q{n};{1 + n % 5};{min(5, 2 + n % 5)},0;a" for n in range(20)]
    table = tmp_path / "scores.csv"
    table.write_text("\n".join(["what;label;said;shop", *rows, "q;3;;a"]), "utf-16")
    words = f"calibrate {table} --metric tact --human-scale 1,5 --map"
    code, out, err = cli(*words.split(), "query=what,human=label,judge=said", "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    (judge,) = report["judges"]
    assert (judge["judge"], judge["n"], judge["n_scored"]) == ("said", 21, 20)
    assert judge["figures"]["bias"]["value"] == pytest.approx(0.8)
    assert judge["figures"]["spearman"]["value"] > 0.9
