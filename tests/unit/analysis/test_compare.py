"""Runs compared on their common units: what is counted, what is warned of, which gates fail."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from memray_eval.analysis.thresholds import find_unfit, judge_gates, parse_gate
from memray_eval.errors import ConfigError, DataError
from memray_eval.report.comparison_console import render, verdict
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import to_table
from memray_eval.types import Record, Response, Sample, Score
from tests.build import build_record
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


class Runs:
    """Writes runs as a run does, a part a list of records, and reads sides of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

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
        return Side(
            name, candidate, MANIFEST | manifest, read_scores(folder.records(), candidate, cluster)
        )


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def test_units_are_common_by_sample_and_task(runs: Runs) -> None:
    a = runs.side(
        "a",
        [
            unit("1", {"recall": 0.0}, task="x"),
            unit("1", {"recall": 1.0}, task="y"),
            unit("2", {"recall": 1.0}),
        ],
    )
    b = runs.side(
        "b",
        [unit("3", {"recall": 1.0}), unit("1", {"recall": 1.0}, task="y")],
        [unit("1", {"recall": 1.0}, task="x")],
    )
    comparison = compare([a, b], settings=QUICK)
    (common,) = comparison.common
    assert (common.n, common.only_a, common.only_b) == (2, 1, 1)
    (recall,) = comparison.metrics
    seen = (recall.paired.n, recall.paired.mean_a, recall.paired.mean_b, recall.paired.difference)
    assert seen == (2, 0.5, 1.0, 0.5)
    assert comparison.warnings == ("answers without a partner: 1 of A, 1 of B",)


def test_a_unit_without_a_score_is_left_out_and_counted_not_a_zero(runs: Runs) -> None:
    a = runs.side(
        "a",
        [unit("1", {"empathy": 0.5}), unit("2", {"empathy": None}), unit("3", {"empathy": 0.9})],
    )
    b = runs.side(
        "b",
        [unit("1", {"empathy": 0.7}), unit("2", {"empathy": 0.1}), unit("3", {"empathy": None})],
    )
    (empathy,) = compare([a, b], settings=QUICK).metrics
    assert (empathy.paired.n, empathy.only_a, empathy.only_b) == (1, 1, 1)
    assert empathy.paired.difference == pytest.approx(0.2)
    assert empathy.paired.stderr is None


def test_a_unit_written_twice_counts_once(runs: Runs) -> None:
    first = unit("1", {"recall": 1.0})
    side = runs.side("a", [first], [first, unit("2", {"recall": 0.0})])
    assert side.scores.units["key"].to_pylist() == ["1\x1f", "2\x1f"]
    assert compare([side, side], settings=QUICK).metrics[0].paired.n == 2


def test_units_that_flipped_are_counted_and_listed(runs: Runs) -> None:
    a = runs.side("a", [unit(str(i), {"recall": float(i < 4), "empathy": 0.5}) for i in range(8)])
    b = runs.side(
        "b", [unit(str(i), {"recall": float(i in (0, 1, 5)), "empathy": i / 8}) for i in range(8)]
    )
    recall, empathy = compare([a, b], settings=QUICK, flips=2).metrics
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
        values = [
            {"recall": i % 3 / 3 + shift, "empathy": i % 5 / 5 - shift * (i % 2)} for i in range(12)
        ]
        return runs.side(name, [unit(str(i), value) for i, value in enumerate(values)])

    comparison = compare([run("a", 0.0), run("b", 0.1), run("c", 0.0)], settings=QUICK)
    assert [(metric.other, metric.metric) for metric in comparison.metrics] == [
        ("b", "recall"), ("b", "empathy"), ("c", "recall"), ("c", "empathy")
    ]  # fmt: skip
    raw = [metric.paired.p_value for metric in comparison.metrics]
    assert [metric.p_holm for metric in comparison.metrics] == pytest.approx(
        holm([p for p in raw if p is not None])
    )
    assert comparison.metrics[0].p_holm == pytest.approx(4 * (raw[0] or 0.0))


@pytest.mark.parametrize("field", ["metadata.user", "user", "scenario"])
def test_units_cluster_by_what_their_samples_say(runs: Runs, field: str) -> None:
    def records(shift: float) -> list[Record]:
        return [
            unit(
                str(i),
                {"recall": i / 20 + shift * (i // 4)},
                metadata={"user": i // 4},
                scenario=f"s{i // 4}",
            )
            for i in range(12)
        ]

    sides = [
        runs.side("a", records(0.0), cluster=field),
        runs.side("b", records(0.1), cluster=field),
    ]
    (recall,) = compare(sides, cluster=field, settings=QUICK).metrics
    assert recall.paired.n_clusters == 3
    assert recall.paired.stderr == pytest.approx(0.1 / 3**0.5)  # of three users at 0, 0.1 and 0.2
    assert recall.paired.p_value == pytest.approx(2 / 4)  # of two users who differ


def test_a_unit_without_a_cluster_is_one_of_its_own_and_a_field_that_none_has_is_an_error(
    runs: Runs,
) -> None:
    records = [unit("1", {"recall": 0.1}, metadata={"user": "u"}), unit("2", {"recall": 0.2},
    metadata={"user": "u"}),
               unit("3", {"recall": 0.4}), unit("4", {"recall": 0.3})]  # fmt: skip
    sides = [runs.side(name, records, cluster="user") for name in "ab"]
    comparison = compare(sides, cluster="user", settings=QUICK)
    assert comparison.metrics[0].paired.n_clusters == 3
    assert comparison.warnings == (
        "A and B have 3 clusters: with fewer than 10, clustered standard errors come out too small",
        "2 answers of A and B name no cluster: each is one of its own",
    )
    with pytest.raises(
        ConfigError,
        match="no answer names a 'patient' to cluster by; there are: sample_id, task, scenario",
    ):
        compare([runs.side("c", records, cluster="patient")] * 2, cluster="patient", settings=QUICK)


def test_warnings_say_what_else_differs(runs: Runs) -> None:
    a = runs.side(
        "a",
        [unit("1", {"empathy": 1.0, "recall": 1.0}), unit("2", {"empathy": 0.5, "recall": 1.0})],
    )
    b = runs.side(
        "b",
        [
            unit("1", {"empathy": 0.0, "fluency": 1.0}, suite="companion"),
            unit("2", {"empathy": 0.5}, suite="companion"),
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


def test_another_layout_of_prompts_is_warned_of_where_a_prompt_cache_was_used(runs: Runs) -> None:
    records, judge = [unit("1", {"empathy": 1.0})], "anthropic/claude"
    used = {"judges": {judge: {"cached_input_tokens": 9}}}
    both = "rubric_first 1; shared_first 1 from 4096 shared tokens on"
    first = runs.side("first", records, judge_prompts={judge: "rubric_first 1"})
    unused = runs.side("unused", records, judge_prompts={judge: both})
    cached = runs.side("cached", records, judge_prompts={judge: both}, calls=used)
    other = runs.side("other", records, judge_prompts={"openai/gpt": both}, calls=used)
    warning = f"{judge}: different layouts of its prompts: rubric_first 1 in A, {both} in B"
    for a, b, expected in (
        (first, cached, (warning,)),
        (first, unused, ()),
        (unused, cached, ()),
        (first, other, ()),  # no judge of both
    ):
        assert compare([a, b], settings=QUICK).warnings == expected, (a.name, b.name)


@pytest.mark.parametrize(
    ("fingerprint", "n_samples", "why"),
    [
        ("2:f1", 3, ""),
        ("f1", 3, ""),
        ("2:f2", 2, "3 and 2"),
        ("f2", 3, "it or their choice changed"),
    ],
)
def test_a_fingerprint_tells_datasets_apart_with_or_without_a_spread_limit(
    runs: Runs, fingerprint: str, n_samples: int, why: str
) -> None:
    records = [unit("1", {"empathy": 1.0})]
    ours, theirs = (
        {"path": "d", "fingerprint": value, "n_samples": n}
        for value, n in (("f1", 3), (fingerprint, n_samples))
    )
    sides = [runs.side("a", records, dataset=ours), runs.side("b", records, dataset=theirs)]
    expected = (f"A and B read different samples of d: {why}",) if why else ()
    assert compare(sides, settings=QUICK).warnings == expected


def test_a_judge_that_was_replaced_is_warned_of_and_a_metric_not_compared_is_not(
    runs: Runs,
) -> None:
    records = [unit("1", {"empathy": 1.0, "recall": 1.0})]
    heard = {"empathy/small": {"rules": 3, "openai/gpt": 1}}
    sides = [
        runs.side("a", records),
        runs.side("b", records, judged_by=heard),
        runs.side("c", records, judges={"empathy": "rules"}),
    ]
    assert compare(sides, settings=QUICK).warnings == (
        "empathy: scored by rules in A; openai/gpt, rules in B",
        "empathy/chat: different judges: rules in A, none in C",
        "recall: different judges: computed in A, none in C",
    )
    assert compare(sides[:2], metrics=["recall"], settings=QUICK).warnings == ()


def scored_by(judge: str, sample_id: str, value: float) -> Record:
    bare = unit(sample_id, {})
    return bare.model_copy(
        update={"scores": (Score(metric="empathy", status="scored", value=value, judge=judge),)}
    )


def test_a_comparison_of_estimates_says_so_on_their_line(runs: Runs) -> None:
    verdicts = [scored_by("openai/gpt", str(i), float(i)) for i in range(3)]
    estimates = [
        scored_by("rules", "0", 1.0),
        scored_by("rules+minilm", "1", 1.0),
        scored_by("zero", "2", 0.0),
    ]
    a, b = runs.side("a", estimates), runs.side("b", verdicts)
    mixed = compare([a, b], settings=QUICK)
    (row,) = mixed.metrics
    assert (row.mark_a, row.mark_b) == ("estimate for 2 of 3, 1 of 3 by fallback", "")
    lines = [line for line in render(mixed).splitlines() if line.startswith("empathy")]
    assert len(lines) == 2
    assert all(line.endswith("A: estimate for 2 of 3, 1 of 3 by fallback") for line in lines)
    (result,) = judge_gates(mixed, [parse_gate("empathy.difference > -5")])
    assert "(A: estimate for 2 of 3, 1 of 3 by fallback)" in str(result)
    assert not any(
        "estimate" in line for line in render(compare([b, b], settings=QUICK)).splitlines()
    )


def ten(runs: Runs, name: str, values: Sequence[Values]) -> Side:
    return runs.side(name, [unit(str(i), of) for i, of in enumerate(values)])


@pytest.mark.parametrize(
    ("text", "outcome", "said"),
    [  # of recall B-A is -0.45 on average, between about -0.57 and -0.33
        ("recall drops", "FAIL", "a drop of recall is shown: "),
        ("recall.high < 0", "FAIL", "recall.high is < 0: "),
        ("recall.high < -0.4", "PASS", "recall.high is not < -0.4: "),
        ("recall.low < -0.3", "FAIL", "recall.low is < -0.3: "),
        ("recall.low<=-0.7", "PASS", "recall.low is not <= -0.7: "),
        ("recall.difference < -0.4", "FAIL", "recall.difference is < -0.4: "),
        ("recall.difference < -0.5", "PASS", "recall.difference is not < -0.5: "),
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
def test_gates(runs: Runs, text: str, outcome: str, said: str) -> None:
    shared = {"empathy": None, "equal": 0.5}
    a = ten(runs, "a", [{"recall": 0.9, "noise": 0.5, **shared} for i in range(12)])
    b = ten(runs, "b", [
        {"recall": 0.6 if i % 2 else 0.3, "noise": 0.6 if i % 2 else 0.4, **shared, "empathy": 1.0}
        for i in range(12)
    ])  # fmt: skip
    (result,) = judge_gates(compare([a, b], settings=QUICK), [parse_gate(text)])
    assert (result.outcome, result.text.startswith(said)) == (outcome, True), result.text
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
    lost = (Score.model_validate({"metric": "recall", "status": status, "value": None}),)
    rows = [row.model_copy(update={"scores": lost}) if i < n_lost else row
            for i, row in enumerate(rows)]  # fmt: skip
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
    three = compare([a, b, a_third(runs)], settings=QUICK)
    assert bool(three.matrix) != is_undecided


def a_third(runs: Runs) -> Side:
    return ten(runs, "c", [{"recall": 0.7 - i % 5 / 9} for i in range(66)])


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
    assert (first.paired.low or 0.0) > 0
    assert (first.p_holm or 0.0) > 0.05
    assert first.corrected is not None
    assert first.corrected.low <= 0 < first.corrected.high
    assert not any(row.corrected for row in others)
    (alone,) = compare([a, b], metrics=["m0"]).metrics
    assert alone.corrected is None
    led = compare([a, b], metrics=names)
    sides = {"candidates": {"a": "a", "b": "b"}}
    said = verdict(led.model_copy(update=sides), led.common[0])
    assert said.startswith("m0 +0.023 [-0.007, 0.053]: no difference is shown.")


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
    b = ten(runs, "b", [{"noise": 0.6 if i % 2 else 0.4, "recall": 0.6 if i % 2 else 0.3}
                        for i in range(12)])  # fmt: skip
    comparison = compare([replace(a, leads=of_run), b], metrics=metrics)
    sides = {"candidates": {"a": "a", "b": "b"}}
    said = verdict(comparison.model_copy(update=sides), comparison.common[0])
    assert said.startswith(head)


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
        "empathy",
        "empathy < ",
        "empathy == 1",
        "empathy < x",
        "a < 1 or b < 1",
        "",
        "< 3",
        "empathy < nan",
        "empathy < 1e999",
        "empathy.high drops",
        "empathy rises",
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
    assert summary.recommendation is not None
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
        assert (of.low or 0) < high - low < (of.high or 0)
        for interval, mean in zip((row.interval_a, row.interval_b), figures, strict=True):
            assert interval is not None
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


def test_units_that_changed_most_are_listed_where_scores_are_graded(runs: Runs) -> None:
    a = runs.side("a", [unit(str(i), {"empathy": 3.0}, task="x") for i in range(4)])
    b = runs.side(
        "b",
        [
            unit(str(i), {"empathy": score}, task="x")
            for i, score in enumerate([3.0, 2.0, 5.0, 4.0])
        ],
    )
    comparison = compare([a, b], settings=QUICK, flips=3)
    assert (
        "empathy, answers that changed most:\n  3 -> 5  2 x\n  3 -> 2  1 x\n  3 -> 4  3 x\n"
        in render(comparison, {})
    )
    assert "changed most" not in render(comparison)


def test_the_cluster_is_the_first_key_that_samples_share(runs: Runs) -> None:
    def found(*metadata: dict[str, Any]) -> str | None:
        folder = RunFolder(str(runs.folder / "of"))
        folder.create()
        for name in folder.parts():
            folder.delete_parts([name])
        folder.write_part(
            to_table(
                [unit(str(i), {"recall": 1.0}, metadata=keys) for i, keys in enumerate(metadata)]
            )
        )
        return find_cluster(folder.records())

    assert found({"user": "u"}, {"user": "u"}, {"user": "v"}, {"context": "c"}) == "user"
    seen = found({"user": "u", "context": "c"}, {"user": "v", "context": "c"}, {"context": "d"})
    assert seen == "context"
    assert found({"user": "u"}, {"user": "u"}) is None
    assert found({"user": "u"}, {"user": "v"}) is None
    assert found({"bed": "u"}, {"bed": "u"}, {"bed": "v"}) is None
    assert found({"session": "s", "user": "u"}, {"session": "s", "user": "v"}) == "session"
    assert found({"session": "s"}, {"session": "t"}) is None
    assert found({}, {}) is None


def test_turns_of_one_session_have_no_interval(runs: Runs) -> None:
    sides = [
        runs.side(
            name,
            [
                unit(f"S#{turn}", {"recall": value}, metadata={"session": "S", "turn": turn})
                for turn, value in enumerate(values)
            ],
            cluster="session",
        )
        for name, values in (("a", (0.2, 0.4, 0.6)), ("b", (0.3, 0.6, 0.6)))
    ]
    (recall,) = compare(sides, cluster="session", settings=QUICK).metrics
    paired = recall.paired
    assert (paired.n, paired.n_clusters, paired.low, paired.high) == (3, 1, None, None)


def test_a_sample_of_two_candidates_is_no_cluster(runs: Runs) -> None:
    records = [
        unit("1", {"recall": 1.0}, candidate=name, metadata={"user": "u"})
        for name in ("small", "large")
    ]
    runs.side("a", records)
    assert find_cluster(RunFolder(str(runs.folder / "a")).records()) is None


def test_texts_are_read_of_the_units_asked_for(runs: Runs) -> None:
    answered = unit("1", {"recall": 1.0}, task="x").model_copy(
        update={"response": Response(text="yes")}
    )
    failed = unit("2", {"recall": 1.0}).model_copy(update={"response": Response(error="Throttled")})
    other = unit("1", {"recall": 1.0}, task="y")
    again = answered.model_copy(update={"epoch": 2, "unit_id": "again"})
    large = unit("1", {}, candidate="large", task="x")
    runs.side("a", [answered, failed, other, large], [again, answered])
    records = RunFolder(str(runs.folder / "a")).records()
    read = read_units(records, ["small"], {("1", "x"), ("2", ""), ("3", "")})
    assert {
        unit: [(record.epoch, record.response, record.scores) for record in answers]
        for unit, answers in read.items()
    } == {
        ("small", "1", "x"): [(epoch, answered.response, answered.scores) for epoch in (1, 2)],
        ("small", "2", ""): [(1, failed.response, failed.scores)],
    }


def test_the_candidates_of_a_run(runs: Runs) -> None:
    records = [unit("1", {"recall": 0.0}), unit("1", {"recall": 1.0}, candidate="large")]
    small, large = runs.side("a", records), runs.side("a", records, candidate="large")
    assert candidates_of(RunFolder(str(runs.folder / "a")).records()) == ["large", "small"]
    assert compare([small, large], settings=QUICK).metrics[0].paired.difference == 1.0


def test_sides_that_answered_differently_often_are_warned_of(runs: Runs) -> None:
    spoken = [unit(f"{number}", {"recall": 1.0}) for number in range(4)]
    silent = [
        record.model_copy(update={"response": Response(no_answer="limit"), "scores": ()})
        for record in spoken[:1]
    ]
    a, b = runs.side("a", spoken), runs.side("b", [*silent, *spoken[1:]])
    comparison = compare([a, b], settings=QUICK)
    assert comparison.warnings == (
        "A and B answered differently often; without an answer: 0 of 4 in A, 1 of 4 in B",
    )
    (recall,) = comparison.metrics
    assert (recall.paired.n, recall.only_a, recall.paired.mean_b) == (3, 1, 1.0)
    assert compare([b, b], settings=QUICK).warnings == ()
