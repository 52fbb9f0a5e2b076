"""Answers on conversations by arm: where the wrong ones failed, recall, categories, errata."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

from memray_eval.analysis.conversations import ANSWERS, summarise_arms
from memray_eval.analysis.reduce import reduce_records
from memray_eval.benchmarks import get_suite
from memray_eval.benchmarks.conversations import Erratum
from memray_eval.report.html.view_model import arms_plot
from memray_eval.report.tables import arm_sections
from memray_eval.results.schema import to_table
from memray_eval.types import FAILURES, ArmSummary, Candidate, Record, Response, Retrieval
from tests.build import build_record, build_sample, build_score, build_summary

LOCOMO = get_suite("locomo")
METRICS = ["semantic_correctness", "rule_score"]
FULL = Candidate(name="full", model="m")
FOUND = Candidate(name="found", model="m", context="retrieved", retrieved=Retrieval(k=3))


def record(
    number: int,
    judge: float | None,
    rule: float | None,
    *,
    candidate: Candidate = FULL,
    task: str = "single_hop",
    text: str = "Porto",
    evidence: Sequence[tuple[str, str]] = (("D1:1", "D1"),),
    **metadata: Any,
) -> Record:
    values = {"semantic_correctness": judge, "rule_score": rule}
    notes = {
        "conversation": f"conv-{number % 2}",
        "evidence": [list(pair) for pair in evidence],
        "unanswerable": task == "adversarial",
        "evidence_shown": [0],
        **metadata,
    }
    sample = build_sample(
        id=f"conv-{number % 2}:qa{number}", suite="locomo", task=task, answers=("Porto",),
        metadata=notes,
    )  # fmt: skip
    response = Response(text=text, prompt_tokens=100 * (number + 1), duration_s=2.0)
    scores = (build_score(name, value, judge="a/b")
              for name, value in values.items() if value is not None)  # fmt: skip
    unit_id = f"{candidate.name}{number}"
    return build_record(sample, response, *scores, candidate=candidate, unit_id=unit_id)


def measured(
    records: Sequence[Record], tmp_path: Path, errata: dict[str, Erratum] | None = None
) -> tuple[ArmSummary, ...]:
    pq.write_table(to_table(records), tmp_path / "part.parquet")
    [answers] = reduce_records(pads.dataset(tmp_path), [], ANSWERS).taken
    return summarise_arms(chain.from_iterable(answers), LOCOMO, METRICS, errata or {})


WRONG = [
    record(0, 0.0, 0.0, evidence_shown=[]),
    record(1, 0.0, 0.2),
    record(2, 0.0, 0.0, text="I don't know"),
    record(3, 0.0, 0.0, task="adversarial", text="A boat"),
    record(4, 1.0, 0.1),
    record(5, 0.0, 0.9),
    record(6, 0.0, 0.0, evidence=()),
    record(7, 1.0, 1.0),
    record(8, None, None),
]


def test_every_wrong_answer_has_one_place_where_it_failed(tmp_path: Path) -> None:
    [arm] = measured(WRONG, tmp_path)
    assert arm.failures == {
        "not_retrieved": 1, "not_used": 1, "answered": 1, "abstained": 1, "disputed": 2,
    }  # fmt: skip
    assert (arm.n, arm.n_wrong, arm.n_unexplained) == (9, 6, 1)
    assert sum(arm.failures.values()) == arm.n_wrong
    assert set(arm.failures) == set(FAILURES)


def test_a_part_of_the_evidence_is_not_enough_and_one_measure_suffices(tmp_path: Path) -> None:
    pair = (("D1:1", "D1"), ("D2:1", "D2"))
    records = [record(0, 0.0, 0.0, evidence=pair), record(2, 0.0, 0.0, text="Unknown",
               evidence=pair, evidence_shown=[0, 1])]  # fmt: skip
    [arm] = measured(records, tmp_path)
    assert (arm.failures["not_retrieved"], arm.failures["abstained"]) == (1, 1)
    assert (arm.recall, arm.n_recall) == (0.75, 2)
    [arm] = measured([record(0, None, 0.0), record(1, None, 1.0)], tmp_path)
    assert (arm.failures["not_used"], arm.n_wrong, arm.agreement) == (1, 1, None)


def test_what_a_memory_system_returned_counts_for_its_recall(tmp_path: Path) -> None:
    records = [
        record(0, 0.0, 0.0, candidate=FOUND, retrieved=["D9:1", "D1:1"], evidence_shown=[]),
        record(1, 0.0, 0.0, candidate=FOUND, retrieved=["D1"]),
        record(2, 0.0, 0.0, candidate=FOUND, retrieved=["D9:1"]),
        record(3, 0.0, 0.0, candidate=FOUND, retrieved=[""], evidence_shown=None),
    ]
    [arm] = measured(records, tmp_path)
    assert (arm.recall, arm.n_recall) == (pytest.approx(2 / 3), 3)
    assert arm.arm == "retrieved: 3 turns by bm25"
    assert (arm.failures["not_used"], arm.failures["not_retrieved"]) == (2, 1)
    assert arm.n_unexplained == 1  # its texts name no sources


def test_figures_stand_by_category_and_apart_for_the_unanswerable(tmp_path: Path) -> None:
    [arm] = measured(WRONG, tmp_path)
    by_category = {(row.category, row.metric): row for row in arm.categories}
    assert by_category[None, "rule_score"].n == 8
    assert by_category["adversarial", "rule_score"].mean == 0.0
    assert by_category["single_hop", "rule_score"].mean == pytest.approx((0.2 + 0.1 + 0.9 + 1) / 7)
    first, of_arm = ("\n".join(section.lines()) for section in arm_sections([arm]))
    assert "  8/9  " in first
    assert "answerable alone (n 7)" in of_arm
    low = by_category[None, "rule_score"].low
    assert 0.0 <= low < 0.275  # clustered: two conversations
    assert (arm.n_abstention, arm.abstention) == (1, {"semantic_correctness": 0, "rule_score": 0})
    assert arm.overall["F1, categories 1 to 4"] == pytest.approx(2.2 / 7)
    assert arm.overall["F1, all five categories"] == pytest.approx(2.2 / 8)
    assert (arm.agreement.n, arm.agreement.only_judge, arm.agreement.only_rule) == (8, 1, 1)


def test_tokens_seconds_and_cuts_are_a_questions_which_counts_once(tmp_path: Path) -> None:
    records = [record(0, 0.0, 0.0), record(1, 1.0, 1.0, sessions_left_out=3, turns_left_out=40)]
    [arm] = measured([*records, records[0]], tmp_path)
    assert (arm.n, arm.n_wrong) == (2, 1)
    assert (arm.prompt_tokens_mean, arm.seconds_mean) == (150.0, 2.0)
    assert (arm.n_cut, arm.sessions_left_out, arm.turns_left_out) == (1, 3, 40)


def of_kind(kind: str, correct: str = "Lisbon", golden: str = "Porto") -> Erratum:
    return Erratum(question_id="x", error_type=kind, golden=golden, correct=correct)


def test_errata_give_each_figure_without_them_and_a_ceiling(tmp_path: Path) -> None:
    errata = {
        "conv-0:qa0": of_kind("HALLUCINATION"),
        "conv-1:qa1": of_kind("WRONG_CITATION"),
        "conv-0:qa2": of_kind("AMBIGUOUS", "Porto in the north"),
        "conv-1:qa3": of_kind("HALLUCINATION", golden="another dataset's answer"),
    }
    records = [record(number, float(number > 0), float(number > 0)) for number in range(4)]
    [arm] = measured(records, tmp_path, errata)
    assert arm.n_errata == 4
    judge, rule = arm.errata
    assert (judge.n, judge.mean, judge.n_without, judge.mean_without) == (4, 0.75, 2, 1.0)
    assert judge.ceiling == 0.5
    # by LoCoMo's rule "Porto in the north" scores 1/2 against "Porto": 3 words of it
    assert rule.ceiling == pytest.approx((0.0 + 0.5 + 1 + 1) / 4)


def test_the_page_has_the_table_and_the_plot_with_every_name_escaped(tmp_path: Path) -> None:
    odd = FULL.model_copy(update={"name": "<b>full"})
    arms = measured([record(number, 0.0, 0.0, candidate=odd) for number in range(3)], tmp_path)
    empty = build_summary(suite="locomo", headline="semantic_correctness")
    assert arms_plot(empty) is None
    drawn = arms_plot(empty.model_copy(update={"arms": arms}))
    assert "&lt;b&gt;full" in drawn[0]
    assert "<b>full" not in drawn[0]


@pytest.mark.parametrize(
    "form", ["meta-llama/Llama-3.1-8B-Instruct-{}", "{}-of-a-long-name-of-a-model"]
)
def test_arms_with_long_names_are_told_apart(tmp_path: Path, form: str) -> None:
    [arm] = measured([record(0, 1.0, 1.0)], tmp_path)
    arms = [arm.model_copy(update={"candidate": form.format(end)}) for end in ("full", "bm25")]
    lines = "\n".join(next(arm_sections(arms)).lines()).splitlines()
    (heads,) = (line.split() for line in lines if line.startswith(" ") and "full" in line)
    assert [end in head for end, head in zip(("full", "bm25"), heads, strict=True)] == [True] * 2


def test_an_estimate_says_so(tmp_path: Path) -> None:
    judged, ruled = record(0, 0.0, 0.0).scores
    scores = judged.model_copy(update={"judge": "rules"}), ruled
    estimated = record(0, 0.0, 0.0).model_copy(update={"scores": scores})
    [arm] = measured([estimated, record(1, 1.0, 1.0)], tmp_path)
    assert arm.estimated == ("semantic_correctness",)
    together, of_arm = ("\n".join(section.lines()) for section in arm_sections([arm]))
    assert "0.500 est." in together
    assert "semantic_correctness est." in of_arm
    assert "rule_score est." not in of_arm


def test_suites_without_conversations_have_no_arms() -> None:
    assert not get_suite("longbench").has_arms
    assert replace(LOCOMO, name="x").overall([]) == {"F1, categories 1 to 4": None}
