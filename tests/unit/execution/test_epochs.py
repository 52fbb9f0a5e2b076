"""What is asked of a candidate in several epochs: in which order, with which seeds, what not."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

from memray_eval.benchmarks.own import SuiteSource
from memray_eval.datasets.reading import SampleReader
from memray_eval.execution import prompt_stage
from memray_eval.execution.prompt_stage import PromptSpec, prompts_for_engine, prompts_for_servers
from memray_eval.execution.resume_state import ResumeState, UnitIdSet
from memray_eval.execution.stage_context import StageContext
from memray_eval.results.schema import samples_to_table
from memray_eval.types import Candidate, Sampling, unit_id
from tests.build import build_sample

SAMPLES = [build_sample(id=f"s{number}", suite="memory") for number in range(2)]


def asking(folder: Path, *candidates: Candidate, done: UnitIdSet | None = None) -> PromptSpec:
    counter = MagicMock()
    counter.stopping.return_value = None
    return PromptSpec(
        reading=SampleReader(suite="memory"),
        suite=SuiteSource("memory"),
        candidates=candidates,
        epochs=3,
        resume_state=ResumeState(finished=done or UnitIdSet()),
        context=StageContext(str(folder), counter),
        max_model_len=4096,
    )


def test_answers_of_a_candidate_to_a_sample_stand_together(tmp_path: Path) -> None:
    names = ("a", "b")
    spec = asking(tmp_path, *(Candidate(name=name, model="m", backend="openai") for name in names))
    rows = pa.concat_tables(prompts_for_servers(samples_to_table(SAMPLES), spec)).to_pylist()
    assert [(row["sample_id"], row["candidate"], row["epoch"]) for row in rows] == [
        (sample.id, name, epoch) for sample in SAMPLES for name in names for epoch in (1, 2, 3)
    ]


@pytest.mark.parametrize(("seed", "seeds"), [(7, [7, 8, 9]), (None, [None] * 3)])
def test_an_engine_draws_by_seeds_that_follow_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int | None, seeds: list[int | None]
) -> None:
    tokenizer = MagicMock(has_chat=False)
    tokenizer.encode.return_value = [1, 2, 3]
    monkeypatch.setattr(prompt_stage, "load_tokenizer", lambda model: tokenizer)
    candidate = Candidate(name="a", model="m", sampling=Sampling(temperature=0.5, seed=seed))
    done = UnitIdSet([unit_id("s1", candidate, "memory", 2)])
    spec = asking(tmp_path, candidate, done=done)
    rows = pa.concat_tables(prompts_for_engine(samples_to_table(SAMPLES), spec)).to_pylist()
    asked = [(row["sample_id"], json.loads(row["sampling_params"]).get("seed")) for row in rows]
    assert asked == [("s0", seed) for seed in seeds] + [("s1", seeds[0]), ("s1", seeds[2])]
    assert len({row["unit_id"] for row in rows}) == 5
