"""Runs compared on their common units: what is counted, what is warned of, which gates fail."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memray_eval.analysis.comparing import Side, compare
from memray_eval.analysis.open_runs import pick_candidates
from memray_eval.analysis.scores import (
    candidates_of,
    find_cluster,
    read_scores,
    read_units,
    summarise_groups,
)
from memray_eval.analysis.statistics import CompareOptions, holm
from memray_eval.analysis.thresholds import SIGNS, find_unfit, judge_gates, parse_gate
from memray_eval.errors import ConfigError, DataError
from memray_eval.report.comparison_console import render, verdict
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import to_table
from memray_eval.types import Record, Response, Sample, Score
from tests.build import build_dataset, build_record, build_score
from tests.runs import write_summarised

QUICK = CompareOptions(resamples=500)
MANIFEST = {
    "status": "finished",
    "dataset": {"path": "d", "fingerprint": "f1"},
    "judges": {"empathy": "rules", "empathy/chat": "rules", "recall": "computed"},
    "rubrics": {"empathy": "r1"},
    "judged_by": {"empathy/small": {"rules": 4}},
}
Values = Mapping[str, float | None]  # metric -> value; None: the judge failed


def unit(sample_id: str, values: Values, candidate: str = "small", **sample: Any) -> Record:
    scores = tuple(
        Score(metric=name, status="error" if value is None else "scored", value=value)
        for name, value in values.items()
    )
    question = Sample(id=sample_id, query="q", **{"suite": "memory", **sample})
    unit_id = f"{sample_id}/{question.task}/{candidate}"
    return build_record(question, None, *scores, candidate=candidate, unit_id=unit_id)


@dataclass
class Runs:
    """Writes runs as a run does, a part a list of records, and reads sides of them."""

    folder: Path

    def side(
        self,
        name: str,
        *parts: Sequence[Record],
        candidate: str = "small",
        cluster: str | None = None,
        **manifest: Any,
    ) -> Side:
        folder = RunFolder(str(self.folder / name))
        folder.create()
        for part in parts:
            folder.write_part(to_table(part))
        scores = read_scores(folder.records(), candidate, cluster)
        return Side(name, candidate, MANIFEST | manifest, scores)


def ten(runs: Runs, name: str, values: Sequence[Values]) -> Side:
    return runs.side(name, [unit(str(i), of) for i, of in enumerate(values)])


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def test_units_are_common_by_sample_and_task(runs: Runs) -> None:
    x, y = ({"task": task} for task in "xy")
    right = {"recall": 1.0}
    a = runs.side("a", [unit("1", {"recall": 0.0}, **x), unit("1", right, **y), unit("2", right)])
    b = runs.side("b", [unit("3", right), unit("1", right, **y)], [unit("1", right, **x)])
    comparison = compare([a, b], settings=QUICK)
    (common,), (recall,) = comparison.common, comparison.metrics
    assert (common.n, common.only_a, common.only_b) == (2, 1, 1)
    of = recall.paired
    assert (of.n, of.mean_a, of.mean_b, of.difference) == (2, 0.5, 1.0, 0.5)
    assert comparison.warnings == ("answers without a partner: 1 of A, 1 of B",)


def test_a_unit_without_a_score_is_left_out_and_counted_not_a_zero(runs: Runs) -> None:
    a = ten(runs, "a", [{"empathy": value} for value in (0.5, None, 0.9)])
    b = ten(runs, "b", [{"empathy": value} for value in (0.7, 0.1, None)])
    (empathy,) = compare([a, b], settings=QUICK).metrics
    assert (empathy.paired.n, empathy.only_a, empathy.only_b) == (1, 1, 1)
    assert empathy.paired.difference == pytest.approx(0.2)
    assert empathy.paired.stderr is None


def test_a_unit_written_twice_counts_once_and_candidates_are_apart(runs: Runs) -> None:
    first, large = unit("1", {"recall": 0.0}), unit("1", {"recall": 1.0}, candidate="large")
    side = runs.side("a", [first, large], [first, unit("2", {"recall": 0.0})])
    assert side.scores.units["key"].to_pylist() == ["1\x1f", "2\x1f"]
    assert compare([side, side], settings=QUICK).metrics[0].paired.n == 2
    records = RunFolder(str(runs.folder / "a")).records()
    assert candidates_of(records) == ["large", "small"]
    other = Side("a", "large", MANIFEST, read_scores(records, "large"))
    assert compare([side, other], settings=QUICK).metrics[0].paired.difference == 1.0


def test_units_that_flipped_are_counted_and_listed(runs: Runs) -> None:
    a = ten(runs, "a", [{"recall": float(i < 4), "empathy": 0.5} for i in range(8)])
    b = ten(runs, "b", [{"recall": float(i in (0, 1, 5)), "empathy": i / 8} for i in range(8)])
    comparison = compare([a, b], settings=QUICK, flips=2)
    recall, empathy = comparison.metrics
    assert (recall.flips_up, recall.flips_down) == (1, 2)
    expected = [("2", "down"), ("3", "down")]
    assert [(flip.sample_id, flip.direction) for flip in recall.flips] == expected
    assert (recall.paired.wins, recall.paired.ties, recall.paired.losses) == (1, 5, 2)
    assert empathy.flips_up is None
    # Furthest first
    expected = [("0", 0.5, 0.0), ("1", 0.5, 0.125)]
    assert [(flip.sample_id, flip.a, flip.b) for flip in empathy.flips] == expected
    assert recall.interval_a is not None  # Wilson's, of 4 in 8
    assert recall.interval_a == pytest.approx((0.2152, 0.7848), abs=1e-4)


def test_p_values_are_corrected_over_all_metrics_and_candidates(runs: Runs) -> None:
    def run(name: str, shift: float) -> Side:
        values = [(i % 3 / 3 + shift, i % 5 / 5 - shift * (i % 2)) for i in range(12)]
        return ten(runs, name, [{"recall": of, "empathy": other} for of, other in values])

    rows = compare([run("a", 0.0), run("b", 0.1), run("c", 0.0)], settings=QUICK).metrics
    expected = ["b recall", "b empathy", "c recall", "c empathy"]
    assert [f"{row.other} {row.metric}" for row in rows] == expected
    raw = [row.paired.p_value or 0.0 for row in rows]
    assert [row.p_holm for row in rows] == pytest.approx(holm(raw))
    assert rows[0].p_holm == pytest.approx(4 * raw[0])


@pytest.mark.parametrize("field", ["metadata.user", "user", "scenario"])
def test_units_cluster_by_what_their_samples_say(runs: Runs, field: str) -> None:
    def side(name: str, shift: float) -> Side:
        records = []
        for i in range(12):
            about = {"metadata": {"user": i // 4}, "scenario": str(i // 4)}
            records.append(unit(str(i), {"recall": i / 20 + shift * (i // 4)}, **about))
        return runs.side(name, records, cluster=field)

    sides = [side("a", 0.0), side("b", 0.1)]
    (recall,) = compare(sides, cluster=field, settings=QUICK).metrics
    assert recall.paired.n_clusters == 3
    assert recall.paired.stderr == pytest.approx(0.1 / 3**0.5)  # of three users at 0, 0.1 and 0.2
    assert recall.paired.p_value == pytest.approx(2 / 4)  # of two users who differ


def test_a_unit_without_a_cluster_is_one_of_its_own_and_a_field_that_none_has_is_an_error(
    runs: Runs,
) -> None:
    users = ({"user": "u"}, {"user": "u"}, {}, {})
    records = [unit(str(i), {"recall": i / 9}, metadata=user) for i, user in enumerate(users)]
    sides = [runs.side(name, records, cluster="user") for name in "ab"]
    comparison = compare(sides, cluster="user", settings=QUICK)
    assert comparison.metrics[0].paired.n_clusters == 3
    assert comparison.warnings == (
        "A and B have 3 clusters: with fewer than 10, clustered standard errors come out too small",
        "2 answers of A and B name no cluster: each is one of its own",
    )
    named = "no answer names a 'patient' to cluster by; there are: sample_id, task, scenario"
    with pytest.raises(ConfigError, match=named):
        compare([runs.side("c", records, cluster="patient")] * 2, cluster="patient", settings=QUICK)


def test_warnings_say_what_else_differs(runs: Runs) -> None:
    a = ten(runs, "a", [{"empathy": 1.0, "recall": 1.0}, {"empathy": 0.5, "recall": 1.0}])
    b = runs.side(
        "b",
        [
            unit("0", {"empathy": 0.0, "fluency": 1.0}, suite="companion"),
            unit("1", {"empathy": 0.5}, suite="companion"),
        ],
        status="interrupted",
        dataset={"path": "e", "fingerprint": "f2"},
        judges={"empathy": "openai/gpt", "empathy/chat": "rules", "recall": "other"},
        rubrics={"empathy": "r2"},
        rubric_versions={"empathy": "2"},
        judged_by={"empathy/small": {"openai/gpt": 3, "rules": 1}},
    )
    assert compare([a, b], settings=QUICK).warnings == (
        "B is not finished: its status is 'interrupted'",
        "A and B are of different suites: memory; companion",
        "A and B read different datasets: d and e",
        "empathy: different judges: rules in A, openai/gpt in B",
        "empathy: different rubrics: digest r1 in A; version 2, digest r2 in B",
        "metrics that only one of A and B has are not compared: fluency, recall",
    )
    assert compare([a, a], settings=QUICK).warnings == ()


HEARD = {"empathy/small": {"rules": 3, "openai/gpt": 1}}
CLAUDE = "anthropic/claude"
SHARED = "rubric_first 1; shared_first 1 from 4096 shared tokens on"
CACHED = {"calls": {"judges": {CLAUDE: {"cached_input_tokens": 9}}}}
FIRST, BOTH = {"judge_prompts": {CLAUDE: "rubric_first 1"}}, {"judge_prompts": {CLAUDE: SHARED}}
LAYOUTS = f"{CLAUDE}: different layouts of its prompts: rubric_first 1 in A, {SHARED} in B"


OTHER_SAMPLES = "A and B read different samples of d"


def read(fingerprint: str, n_samples: int) -> dict[str, Any]:
    return {"dataset": {"path": "d", "fingerprint": fingerprint, "n_samples": n_samples}}


@pytest.mark.parametrize(
    ("ours", "theirs", "warnings"),
    [
        ({}, {"judged_by": HEARD}, ["empathy: scored by rules in A; openai/gpt, rules in B"]),
        (
            {},
            {"judges": {"empathy": "rules"}},
            [
                "empathy/chat: different judges: rules in A, none in B",
                "recall: different judges: computed in A, none in B",
            ],
        ),
        (FIRST, BOTH | CACHED, [LAYOUTS]),
        (FIRST, BOTH, []),  # without a prompt cache
        (BOTH, BOTH | CACHED, []),
        (FIRST, {"judge_prompts": {"openai/gpt": SHARED}} | CACHED, []),  # of no judge of both
        (read("f1", 3), read("2:f1", 3), []),  # of a limit that is spread
        (read("f1", 3), read("2:f2", 2), [f"{OTHER_SAMPLES}: 3 and 2"]),
        (read("f1", 3), read("f2", 3), [f"{OTHER_SAMPLES}: it or their choice changed"]),
    ],
    ids="judge judge_of_a_task layouts uncached alike of_no_judge spread fewer changed".split(),
)
def test_manifests_that_differ_are_warned_of(
    runs: Runs, ours: dict[str, Any], theirs: dict[str, Any], warnings: list[str]
) -> None:
    records = [unit("1", {"empathy": 1.0, "recall": 1.0, "fluency": 1.0})]
    sides = [runs.side("a", records, **ours), runs.side("b", records, **theirs)]
    assert list(compare(sides, settings=QUICK).warnings) == warnings
    of_another = [text for text in warnings if not text.startswith(("empathy", "recall"))]
    assert list(compare(sides, metrics=["fluency"], settings=QUICK).warnings) == of_another


def test_a_comparison_of_estimates_says_so_on_their_line(runs: Runs) -> None:
    def judged(*judges: str) -> list[Record]:
        scores = [(build_score("empathy", float(i), judge=of),) for i, of in enumerate(judges)]
        return [unit(str(i), {}).model_copy(update={"scores": of}) for i, of in enumerate(scores)]

    a = runs.side("a", judged("rules", "rules+minilm", "zero"))
    b = runs.side("b", judged(*["openai/gpt"] * 3))
    mixed, mark = compare([a, b], settings=QUICK), "estimate for 2 of 3, 1 of 3 by fallback"
    (row,) = mixed.metrics
    assert (row.mark_a, row.mark_b) == (mark, "")
    lines = [line for line in render(mixed).splitlines() if line.startswith("empathy")]
    assert [line.endswith(f"A: {mark}") for line in lines] == [True, True]
    (result,) = judge_gates(mixed, [parse_gate("empathy.difference > -5")])
    assert f"(A: {mark})" in str(result)
    assert "estimate" not in render(compare([b, b], settings=QUICK))


@pytest.mark.parametrize(
    ("text", "outcome", "sentence"),
    [  # of recall B-A is -0.45 on average, between about -0.57 and -0.33
        ("recall drops", "FAIL", "a drop of recall is shown: "),
        ("recall.high < 0", "FAIL", "recall.high is < 0: "),
        ("recall.high < -0.4", "PASS", "recall.high is not < -0.4: "),
        ("recall.low < -0.3", "FAIL", "recall.low is < -0.3: "),
        ("recall.low<=-0.7", "PASS", "recall.low is not <= -0.7: "),
        ("recall.difference < -0.4", "FAIL", "recall.difference is < -0.4: "),
        ("recall.difference < -0.5", "PASS", "recall.difference is not < -0.5: "),
        ("recall.difference < -0.45", "PASS", "recall.difference is not < -0.45: "),
        ("recall.difference <= -0.45", "FAIL", "recall.difference is <= -0.45: "),
        ("recall < -0.2", "FAIL", "all of the interval of recall is < -0.2: "),
        ("recall < -0.4", "INCONCLUSIVE", "some of the interval of recall is < -0.4: "),
        ("recall < -0.7", "PASS", "no part of the interval of recall is < -0.7: "),
        ("recall > -.2", "PASS", "no part of the interval of recall is > -0.2: "),
        ("recall >= -0.45", "INCONCLUSIVE", "some of the interval of recall is >= -0.45: "),
        ("noise drops", "PASS", "no drop of noise is shown: "),
        ("noise < 0", "INCONCLUSIVE", "some of the interval of noise is < 0: "),
        ("equal drops", "PASS", "no drop of equal is shown: "),
        ("equal < -0.1", "PASS", "no part of the interval of equal is < -0.1: "),
        ("empathy < -0.1", "INCONCLUSIVE", "empathy < -0.1: b has no answer scored on both"),
        ("empathy drops", "INCONCLUSIVE", "empathy drops: b has no answer scored"),
    ],
)
def test_gates(runs: Runs, text: str, outcome: str, sentence: str) -> None:
    shared = {"empathy": None, "equal": 0.5}
    a = ten(runs, "a", [{"recall": 0.9, "noise": 0.5, **shared} for i in range(12)])
    b = ten(runs, "b", [
        {"recall": 0.6 if i % 2 else 0.3, "noise": 0.6 if i % 2 else 0.4, **shared, "empathy": 1.0}
        for i in range(12)
    ])  # fmt: skip
    (result,) = judge_gates(compare([a, b], settings=QUICK), [parse_gate(text)])
    assert (result.outcome, result.text.startswith(sentence)) == (outcome, True), result.text
    assert result.gate == text
    assert ("b differs by" in result.text) == (text != "empathy < -0.1" and text != "empathy drops")


def test_a_pass_says_what_drop_so_many_answers_would_show(runs: Runs) -> None:
    a, b, c = (
        ten(runs, name, [{"recall": 0.5 + spread * (-1) ** i} for i in range(12)])
        for name, spread in (("a", 0.0), ("b", 0.02), ("c", 0.2))
    )
    gates = [parse_gate("recall drops")]
    (few,) = judge_gates(compare([a, b], settings=QUICK), gates)
    (too_few,) = judge_gates(compare([a, c], settings=QUICK), gates)
    assert few.text == (
        "no drop of recall is shown: b differs by +0.0000 on 12 answers, 95% interval -0.0133 to "
        "0.0133; so many answers show one of 0.019 or more (80% of the time)"
    )
    assert too_few.text.endswith(
        "too few to show a useful drop, only one of 0.19 or more (80% of the time)"
    )


@pytest.mark.parametrize(
    ("figure", "bound", "signs"),
    [
        (0.1 + 0.2, 0.3, "<= >= =="),
        (0.29999, 0.3, "< <="),
        (0.8 - 0.7 - 0.1, 0.0, "<= >= =="),
        (5e-11, 1e-10, "< <="),  # who writes such a bound means it
        (100_000_000, 99_999_999, "> >="),
        (math.nan, 0.0, ""),
    ],
)
def test_a_figure_at_its_bound_is_at_it_in_spite_of_float_error(
    figure: float, bound: float, signs: str
) -> None:
    assert [sign for sign, holds in SIGNS.items() if holds(figure, bound)] == signs.split()


def test_three_units_show_no_drop_and_a_gate_says_so(runs: Runs) -> None:
    a, b = (ten(runs, name, [{"recall": value}] * 3) for name, value in (("a", 1.0), ("b", 0.0)))
    (result,) = judge_gates(compare([a, b], settings=QUICK), [parse_gate("recall drops")])
    assert (result.outcome, "too few to show anything" in result.text) == ("INCONCLUSIVE", True)


@pytest.mark.parametrize(
    ("status", "n_lost", "left_out", "outcome"),
    [
        ("no_answer", 60, "B: not decided: 60 of 66 did not answer", "INCONCLUSIVE"),
        ("abstained", 24, "B: not decided: 24 of 66 verdicts could not be read", "INCONCLUSIVE"),
        ("no_answer", 3, "B: 3 of 66 did not answer", "FAIL"),
        ("error", 60, "", "FAIL"),  # a failure of the infrastructure stays out
    ],
)
def test_too_few_answers_or_verdicts_decide_nothing(
    runs: Runs, status: str, n_lost: int, left_out: str, outcome: str
) -> None:
    a = ten(runs, "a", [{"recall": 1.0 - i % 2 / 9} for i in range(66)])
    rows = [unit(str(i), {"recall": i % 3 / 9}) for i in range(66)]
    lost = {"scores": (Score(metric="recall", status=status),)}
    rows[:n_lost] = [row.model_copy(update=lost) for row in rows[:n_lost]]
    b = runs.side("b", rows)
    comparison = compare([a, b], settings=QUICK)
    (row,), (common,) = comparison.metrics, comparison.common
    is_undecided = "not decided" in left_out
    assert (row.left_out, row.is_undecided) == (left_out, is_undecided)
    (result,) = judge_gates(comparison, [parse_gate("recall.high < 0")])
    assert (result.outcome, left_out in result.text) == (outcome, True)
    head = verdict(comparison, common)
    assert ("is worse than" in head) != is_undecided
    assert (f"recall, {left_out}." in head) == is_undecided
    assert left_out in " ".join(render(comparison).split())
    third = ten(runs, "c", [{"recall": 0.7 - i % 5 / 9} for i in range(66)])
    three = compare([a, b, third], settings=QUICK)
    assert bool(three.matrix) != is_undecided


def test_of_several_answers_a_sample_the_lost_ones_count_by_their_share(runs: Runs) -> None:
    def draws(n_lost: int) -> list[Record]:
        rows = []
        for i in range(100):
            of = unit(str(i // 5), {"recall": 0.5}).model_copy(update={"epoch": i % 5 + 1})
            lost = (Score(metric="recall", status="no_answer"),)
            rows.append(of.model_copy(update={"scores": lost} if i < n_lost else {}))
        return rows

    few, many = (runs.side(f"s{n}", draws(n)).scores for n in (4, 10))
    rows = np.arange(20)
    assert few.count_left_out("recall", rows) == (20, 1, 0)
    assert many.count_left_out("recall", rows) == (20, 2, 0)


def test_an_interval_clear_of_0_that_the_correction_takes_back_has_another(runs: Runs) -> None:
    names = [f"m{k}" for k in range(12)]
    shown = [0.02, 0.01, 0.05, 0.03, -0.02, 0.06, 0.02, 0.04, -0.01, 0.03]
    a = ten(runs, "a", [dict.fromkeys(names, 0.5) for _ in shown])
    b = ten(runs, "b", [dict.fromkeys(names, 0.5 + of * (-1) ** (i % 2)) | {"m0": 0.5 + of}
                        for i, of in enumerate(shown)])  # fmt: skip
    first, *others = compare([a, b]).metrics
    assert first.paired.low > 0
    assert first.p_holm > 0.05
    assert first.corrected.low <= 0 < first.corrected.high
    assert not any(row.corrected for row in others)
    (alone,) = compare([a, b], metrics=["m0"]).metrics
    assert alone.corrected is None
    led = compare([a, b], metrics=names)
    sides = {"candidates": {"a": "a", "b": "b"}}
    sentence = verdict(led.model_copy(update=sides), led.common[0])
    assert sentence.startswith("m0 +0.023 [-0.007, 0.053]: no difference is shown.")


@pytest.mark.parametrize(
    ("metrics", "of_run", "head"),
    [
        (["noise", "recall"], "", "noise +0.000 [-0.066, 0.066]: no difference is shown. b is"),
        (["recall", "noise"], "noise", "recall -0.450 [-0.550, -0.350]. b is worse than a on 1"),
        (["recall"], "", "b is worse than a on 1 of 1"),
        ([], "", "b is worse than a on 1 of 2"),
        ([], "noise", "noise +0.000 [-0.066, 0.066]: no difference is shown. b is worse"),
    ],
)
def test_the_first_metric_that_was_named_leads(
    runs: Runs, metrics: list[str], of_run: str, head: str
) -> None:
    a = ten(runs, "a", [{"noise": 0.5, "recall": 0.9}] * 12)
    b = ten(runs, "b", [{"noise": 0.6, "recall": 0.6}, {"noise": 0.4, "recall": 0.3}] * 6)
    comparison = compare([replace(a, leads=of_run), b], metrics=metrics)
    named = comparison.model_copy(update={"candidates": {"a": "a", "b": "b"}})
    assert verdict(named, comparison.common[0]).startswith(head)


DIGEST = "0123456789abcdef"


@pytest.mark.parametrize(
    ("calibrated", "digest", "judge", "is_unfit"),
    [
        ([], DIGEST, "openai/gpt-4o", True),
        ([("recall", "openai/gpt-4o", DIGEST)], DIGEST, "openai/gpt-4o", False),
        (
            [("recall", "openai/gpt-4o", DIGEST)],
            f"{DIGEST}, no answer: zero",
            "openai/gpt-4o",
            False,
        ),
        ([("recall", "openai/gpt-4o", DIGEST[::-1])], DIGEST, "openai/gpt-4o", True),
        ([("recall", "openai/gpt-4o", DIGEST)], DIGEST, "rules", True),
        ([], "no answer: zero", "computed", False),
        ([], DIGEST, "rules (no answer)", False),
    ],
)
def test_a_judge_gates_if_it_was_calibrated_on_the_rubric(
    runs: Runs, calibrated: list[tuple[str, str, str]], digest: str, judge: str, is_unfit: bool
) -> None:
    keys = {"rubrics": {"recall": digest}, "judged_by": {"recall/small": {judge: 4}},
            "rubric_versions": {"recall": "2"}}  # fmt: skip
    a = runs.side("a", [unit("1", {"recall": 1.0})], rubrics={})
    b = runs.side("b", [unit("1", {"recall": 1.0})], **keys)
    unfit = dict(find_unfit([a, b], ["recall"], calibrated))
    assert list(unfit) == [("recall", "b")] * is_unfit
    assert all("was not calibrated on recall's rubric (version 2)" in of for of in unfit.values())


@pytest.mark.parametrize(
    "text",
    [
        *("", "empathy", "empathy < ", "empathy == 1", "< 3", "a < 1 or b < 1", "empathy rises"),
        *("empathy < x", "empathy < nan", "empathy < 1e999", "empathy.high drops"),
    ],
)
def test_a_gate_that_cannot_be_read_says_how_to_write_one(text: str) -> None:
    with pytest.raises(ConfigError, match='write "METRIC drops", or'):
        parse_gate(text)


@pytest.mark.parametrize(
    ("low", "high", "figures"),
    [(-0.3, -0.05, (0, 0)), (-1.2, 0.3, (0, 0.3)), (0.2, 0.4, (0.2, 0.4))],
)
def test_means_of_criteria_are_cut_to_their_scale_and_differences_are_not(
    tmp_path: Path, low: float, high: float, figures: tuple[float, float]
) -> None:
    chance = np.random.default_rng(0).normal(0, 0.05, (3, 60))
    values = chance - chance.mean(axis=1)[:, None] + np.array([[low], [high], [high]])
    rows = [
        unit(str(n), {"criteria": value}, candidate=name)
        for name, of_candidate in zip("abc", values, strict=True)
        for n, value in enumerate(of_candidate)
    ]
    folder = write_summarised(tmp_path / "run", rows, ["criteria"])
    summary = folder.read_summary()
    of_runs = [max(mean, 0) for mean in (low, high, high)]
    assert [of.figure.value for of in summary.metrics] == pytest.approx(of_runs)
    qualities = [of.quality for of in summary.performance if of.task is None]
    assert qualities == pytest.approx([100 * mean for mean in of_runs])
    assert {pair.a for pair in summary.differences} <= {"b", "c"}
    assert "a" not in summary.recommendation.best  # as the differences say
    for metric in summary.metrics:
        (group,) = summarise_groups(folder.records(), metric, "nothing").values()
        figure = metric.figure
        assert (group.mean, group.figure.value, group.figure.low, group.figure.high) == (
            pytest.approx((figure.value, figure.value, figure.low, figure.high))
        )
    sides = [of.side(None) for of in pick_candidates([f"{folder.path}:{name}" for name in "abc"])]
    for settings in (QUICK, QUICK.model_copy(update={"bootstrap": True})):
        comparison = compare(sides, settings=settings)
        row = comparison.metrics[0]
        of = row.paired
        assert (of.mean_a, of.mean_b) == pytest.approx(figures)
        assert of.difference == pytest.approx(high - low)
        assert of.low < high - low < of.high
        for interval, mean in zip((row.interval_a, row.interval_b), figures, strict=True):
            assert 0 <= interval.low <= mean + 1e-9
            assert mean - 1e-9 <= interval.high <= 1
        assert [row.value for row in comparison.matrix] == pytest.approx([*figures, figures[1]])
        is_cut = any("means are cut to the scale" in text for text in comparison.warnings)
        assert is_cut == (low < 0)


def test_what_cannot_be_compared_says_why(runs: Runs) -> None:
    a = runs.side("a", [unit("1", {"recall": 1.0})])
    b = runs.side("b", [unit("2", {"recall": 1.0})])
    with pytest.raises(ConfigError, match="two or more"):
        compare([a])
    with pytest.raises(DataError, match="a and b share no sample"):
        compare([a, b])
    with pytest.raises(ConfigError, match="no metric 'humour' in common; there are: recall"):
        compare([a, a], metrics=["humour"])
    with pytest.raises(ConfigError, match="gate 'humour < 0': no metric 'humour'"):
        judge_gates(compare([a, a]), [parse_gate("humour < 0")])
    with pytest.raises(ConfigError, match="no figure 'hihg'; did you mean 'high'"):
        parse_gate("empathy.hihg < 0")


def test_units_that_changed_most_are_listed_if_scores_are_graded(runs: Runs) -> None:
    a, b = (
        runs.side(name, [unit(str(i), {"empathy": of}, task="x") for i, of in enumerate(scores)])
        for name, scores in (("a", [3.0] * 4), ("b", [3.0, 2.0, 5.0, 4.0]))
    )
    comparison = compare([a, b], settings=QUICK, flips=3)
    listed = "empathy, answers that changed most:\n  3 -> 5  2 x\n  3 -> 2  1 x\n  3 -> 4  3 x\n"
    assert listed in render(comparison, {})
    assert "changed most" not in render(comparison)


@pytest.mark.parametrize(
    ("metadata", "cluster"),
    [
        ([{"user": "u"}, {"user": "u"}, {"user": "v"}, {"context": "c"}], "user"),
        (
            [{"user": "u", "context": "c"}, {"user": "v", "context": "c"}, {"context": "d"}],
            "context",
        ),
        ([{"user": "u"}, {"user": "u"}], None),
        ([{"user": "u"}, {"user": "v"}], None),
        ([{"bed": "u"}, {"bed": "u"}, {"bed": "v"}], None),
        ([{"session": "s", "user": "u"}, {"session": "s", "user": "v"}], "session"),
        ([{"session": 7}, {"session": "7"}, {"session": 7.0}], "session"),
        ([{"session": "s"}, {"session": "t"}], None),
        ([{}, {}], None),
    ],
    ids=str,
)
def test_the_cluster_is_the_first_key_that_samples_share(
    tmp_path: Path, metadata: list[dict[str, Any]], cluster: str | None
) -> None:
    records = [unit(str(i), {"recall": 1.0}, metadata=keys) for i, keys in enumerate(metadata)]
    assert find_cluster(build_dataset(tmp_path / "r", records)) == cluster
    doubled = [unit("1", {}, candidate=name, metadata={"user": "u"}) for name in ("a", "b")]
    assert find_cluster(build_dataset(tmp_path / "two", doubled)) is None  # of two candidates


def test_turns_of_one_session_have_no_interval(runs: Runs) -> None:
    sides = []
    for name, values in (("a", (0.2, 0.4, 0.6)), ("b", (0.3, 0.6, 0.6))):
        turns = [unit(f"S#{turn}", {"recall": of}, metadata={"session": "S"})
                 for turn, of in enumerate(values)]  # fmt: skip
        sides.append(runs.side(name, turns, cluster="session"))
    (recall,) = compare(sides, cluster="session", settings=QUICK).metrics
    paired = recall.paired
    assert (paired.n, paired.n_clusters, paired.low, paired.high) == (3, 1, None, None)


def test_texts_are_read_of_the_units_asked_for(tmp_path: Path) -> None:
    response, failed = Response(text="yes"), Response(error="Throttled")
    first = unit("1", {"recall": 1.0}, task="x").model_copy(update={"response": response})
    second = unit("2", {"recall": 1.0}).model_copy(update={"response": failed})
    other = unit("1", {"recall": 1.0}, task="y"), unit("1", {}, candidate="large", task="x")
    again = first.model_copy(update={"epoch": 2, "unit_id": "again"})
    records = build_dataset(tmp_path, [first, second, *other], [again, first])
    read = read_units(records, ["small"], {("1", "x"), ("2", ""), ("3", "")})
    assert {key: [(of.epoch, of.response) for of in answers] for key, answers in read.items()} == {
        ("small", "1", "x"): [(1, response), (2, response)],
        ("small", "2", ""): [(1, failed)],
    }


def test_sides_that_answered_differently_often_are_warned_of(runs: Runs) -> None:
    spoken = [unit(f"{number}", {"recall": 1.0}) for number in range(4)]
    silence = {"response": Response(no_answer="limit"), "scores": ()}
    a = runs.side("a", spoken)
    b = runs.side("b", [spoken[0].model_copy(update=silence), *spoken[1:]])
    comparison = compare([a, b], settings=QUICK)
    assert comparison.warnings == (
        "A and B answered differently often; without an answer: 0 of 4 in A, 1 of 4 in B",
    )
    (recall,) = comparison.metrics
    assert (recall.paired.n, recall.only_a, recall.paired.mean_b) == (3, 1, 1.0)
    assert compare([b, b], settings=QUICK).warnings == ()
