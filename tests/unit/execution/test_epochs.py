"""What is asked of a candidate in several epochs: in which order, with which seeds, what not."""

import json
from pathlib import Path
from unittest.mock import MagicMock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memray_eval.benchmarks.own import SuiteSource
from memray_eval.datasets.reading import SampleReader
from memray_eval.execution.resume_state import ResumeState, UnitIdSet, load_resume_state
from memray_eval.execution.stages import prompt
from memray_eval.execution.stages.blocks import PART, read_waiting
from memray_eval.execution.stages.context import StageContext
from memray_eval.execution.stages.prompt import PromptSpec, prompts_to_ask
from memray_eval.results.schema import from_table, samples_to_table
from memray_eval.types import Candidate, Sampling, unit_id
from tests.build import build_folder, build_record, build_sample, build_score

SAMPLES = [build_sample(id=f"s{number}", suite="memory") for number in range(2)]


def context_of(folder: Path) -> StageContext:
    counter = MagicMock()
    counter.stopping.return_value = None
    return StageContext(str(folder), counter)


def asking(folder: Path, *candidates: Candidate, done: UnitIdSet | None = None) -> PromptSpec:
    return PromptSpec(
        reading=SampleReader(suite="memory"),
        suite=SuiteSource("memory"),
        candidates=candidates,
        epochs=3,
        resume_state=ResumeState(finished=done or UnitIdSet()),
        context=context_of(folder),
        max_model_len=4096,
    )


def test_answers_of_a_candidate_to_a_sample_stand_together(tmp_path: Path) -> None:
    names = ("a", "b")
    spec = asking(tmp_path, *(Candidate(name=name, model="m", backend="openai") for name in names))
    rows = pa.concat_tables(prompts_to_ask(samples_to_table(SAMPLES), spec)).to_pylist()
    assert [(row["sample_id"], row["candidate"], row["epoch"]) for row in rows] == [
        (sample.id, name, epoch) for sample in SAMPLES for name in names for epoch in (1, 2, 3)
    ]


@pytest.mark.parametrize(("seed", "seeds"), [(7, [7, 8, 9]), (None, [None] * 3)])
def test_an_engine_draws_by_seeds_that_follow_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int | None, seeds: list[int | None]
) -> None:
    tokenizer = MagicMock(has_chat=False)
    tokenizer.encode.return_value = [1, 2, 3]
    monkeypatch.setattr(prompt, "load_tokenizer", lambda *model: tokenizer)
    candidate = Candidate(name="a", model="m", sampling=Sampling(temperature=0.5, seed=seed))
    done = UnitIdSet([unit_id("s1", candidate, "memory", 2)])
    spec = asking(tmp_path, candidate, done=done)
    rows = pa.concat_tables(prompts_to_ask(samples_to_table(SAMPLES), spec)).to_pylist()
    asked = [(row["sample_id"], json.loads(row["sampling_params"]).get("seed")) for row in rows]
    assert asked == [("s0", seed) for seed in seeds] + [("s1", seeds[0]), ("s1", seeds[2])]
    assert len({row["unit_id"] for row in rows}) == 5


def test_a_folder_of_an_older_version_is_resumed(tmp_path: Path) -> None:
    scores = [build_score(value=value) for value in (None, 1.0, None)]
    records = [build_record(build_sample(id=f"s{n}"), "x", score) for n, score in enumerate(scores)]
    folder = build_folder(tmp_path / "run", records)
    for file in (tmp_path / "run" / "records").glob("*.parquet"):
        pq.write_table(pq.read_table(file).drop_columns(["epoch"]), file)
    state = load_resume_state(folder)
    assert (len(state.finished), len(state.generated), state.n_retried) == (1, 2, 2)
    assert [record.epoch for record in folder.each()] == [1]
    (part,) = state.waiting
    rows = pa.Table.from_pylist([{PART: part}])
    waiting = read_waiting(rows, state, None, context_of(tmp_path / "run"))
    assert [record.epoch for record in from_table(waiting)] == [1, 1]
