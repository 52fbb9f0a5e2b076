"""The same question after so many turns: what is made, and a risk that grows by plan."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from memray_eval.analysis.breakdown import break_down
from memray_eval.analysis.turns import summarise_turns
from memray_eval.benchmarks import get_suite
from memray_eval.benchmarks.risk_over_context.generator import ARMS, TURNS_BEFORE, samples
from memray_eval.metrics import pick
from memray_eval.ports import Verdict
from memray_eval.report.turn_sections import turn_sections
from memray_eval.stages.judge import judge_record
from memray_eval.types import Message, Record
from tests.build import build_folder, build_record, build_score
from tests.unit.benchmarks.records import PLAIN

METRICS = pick(["risk_escalation"])
SLOPES = {"benign": 0.0, "spiralling": -0.008}  # of restraint, a turn
SEEDS = 20


def test_each_question_is_asked_after_the_first_turns_of_each_conversation() -> None:
    made = list(samples())
    assert len({sample.id for sample in made}) == len(made) == 288
    assert Counter(sample.task for sample in made) == {"benign": 144, "spiralling": 144}
    for sample in made:
        assert len(sample.history) == 2 * sample.metadata["turns_before"]
        assert [turn.role for turn in sample.history[:2]] in ([], ["user", "assistant"])
        prompt = get_suite("risk_over_context").prompt(sample, PLAIN)
        assert prompt.messages[-1].content == sample.query
    by_place = {(s.metadata["theme"], s.query, s.metadata["turns_before"]): s for s in made}
    for (theme, query, n), sample in by_place.items():
        if n:
            longest = by_place[theme, query, max(TURNS_BEFORE)]
            assert longest.history[: 2 * n] == sample.history
    assert {sample.task for sample in samples(["benign"])} == {"benign"}


class ReadingJudge:
    """Reads the restraint off a reply."""

    name = "fake/reader"

    async def judge(self, messages: Sequence[Message], judgment: type[BaseModel]) -> Verdict:
        found = re.findall(r"restraint ([\d.]+)", messages[-1].content)
        read: dict[str, Any] = {"evidence": [], "reasoning": "read", "score": float(found[-1])}
        return Verdict(judgment=judgment.model_validate(read), judge=self.name)


def answer_by_plan(seed: int, *, scored: bool) -> Iterator[Record]:
    """The replies of a candidate whose restraint falls by plan, with differences by question and
    noise; `scored` as ReadingJudge would."""
    random = np.random.default_rng(seed)
    level, own = random.normal(0.7, 0.05, 13), random.normal(0, 0.0005, 13)
    for sample in samples():
        number, n = int(sample.metadata["context_id"][1:]), sample.metadata["turns_before"]
        slope = SLOPES[sample.task] + own[number]
        drawn = level[number] + slope * n + random.normal(0, 0.04)
        restraint = round(min(max(drawn, 0.0), 1.0), 4)
        scores = [build_score("risk_escalation", restraint)] if scored else []
        yield build_record(sample, f"restraint {restraint}", *scores)


async def judge(records: Sequence[Record]) -> list[Record]:
    judges = {"risk_escalation": [ReadingJudge()]}
    return [await judge_record(record, METRICS, judges) for record in records]


def test_a_risk_that_grows_by_plan_is_found_within_its_interval(tmp_path: Path) -> None:
    covered = Counter[str]()
    for seed in range(SEEDS):
        records = list(answer_by_plan(seed, scored=seed > 0))
        records = records if seed else asyncio.run(judge(records))
        dataset = build_folder(tmp_path / str(seed), records).records()
        rows = summarise_turns(dataset, METRICS)
        assert [row.task for row in rows] == list(ARMS)
        for row in rows:
            assert (row.n_sessions, row.n_turns, row.worst) == (36, 144, None)
            assert row.trend
            assert row.trend.low is not None
            assert row.trend.high is not None
            covered[row.task or ""] += row.trend.low <= SLOPES[row.task or ""] <= row.trend.high
    assert min(covered.values()) >= 17, covered
    (section,) = turn_sections(rows)
    assert section.title == "TREND OVER TURNS BEFORE - c"
    tasks = [task for task in break_down(dataset, METRICS).tasks if task.task == "spiralling"]
    assert [task.bucket for task in tasks] == [None, *(f"{n} turns before" for n in TURNS_BEFORE)]
    means = [task.metrics[0].mean or 0.0 for task in tasks[1:]]
    assert means == sorted(means, reverse=True)
