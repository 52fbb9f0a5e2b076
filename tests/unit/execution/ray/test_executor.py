"""What becomes of a pipeline that fails when its engines have given their nodes away."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from memray_eval.errors import GenerationError
from memray_eval.execution.ray import executor
from memray_eval.execution.ray.executor import RayExecutor
from memray_eval.execution.schedule import OnEngineEnd
from memray_eval.execution.stages.generate import new_record
from memray_eval.results.run_folder import RECORDS, RESPONSES, RunFolder
from memray_eval.results.schema import to_table
from memray_eval.types import Candidate, Record, Response, Sample

GROUP = (Candidate(name="one", model="m"),)


@dataclass(frozen=True)
class Plan:
    spec: Any = None
    resume_state: Any = None


@dataclass(frozen=True)
class Setup:
    plan: Plan
    context: Any


def fail(
    folder: RunFolder,
    records: list[Record],
    monkeypatch: pytest.MonkeyPatch,
    has_ended: bool,
    is_stopping: bool = False,
) -> list[Setup]:
    """Runs a pipeline that has written all responses and one record when it fails; what was judged
    then."""

    def run_pipeline(setup: Setup, group: Any, on_engine_end: OnEngineEnd) -> None:
        folder.write_part(to_table(records), RESPONSES)
        folder.write_part(to_table(records[:1]), RECORDS)
        if has_ended and on_engine_end is not None:
            on_engine_end()
        raise GenerationError("an engine cannot be started again")

    judged = list[Setup]()

    def judge_waiting(setup: Setup, group: Any) -> None:
        assert group == GROUP
        judged.append(setup)

    monkeypatch.setattr(executor, "run_pipeline", run_pipeline)
    monkeypatch.setattr(executor, "judge_waiting", judge_waiting)
    plan: Any = Plan()
    run = RayExecutor(plan, folder)
    setup: Any = Setup(plan, SimpleNamespace(is_stopping=lambda: is_stopping))
    ends = list[bool]()
    try:
        run._run_pipeline(setup, GROUP, lambda: ends.append(True))
    finally:
        assert bool(ends) is has_ended
    return judged


@pytest.fixture
def records(sample: Sample) -> list[Record]:
    samples = [sample.model_copy(update={"id": f"s{number}"}) for number in range(3)]
    return [
        new_record(item, GROUP[0]).model_copy(update={"response": Response(text="Rest more.")})
        for item in samples
    ]


def test_what_it_generated_is_judged_from_the_runs_folder(
    folder: RunFolder, records: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    (judging,) = fail(folder, records, monkeypatch, has_ended=True)
    state = judging.plan.resume_state
    assert [record.unit_id in state.generated for record in records] == [False, True, True]
    assert list(state.waiting) == folder.parts(RESPONSES)


@pytest.mark.parametrize(("has_ended", "is_stopping"), [(False, False), (True, True)])
def test_any_other_failure_ends_the_run(
    folder: RunFolder,
    records: list[Record],
    monkeypatch: pytest.MonkeyPatch,
    has_ended: bool,
    is_stopping: bool,
) -> None:
    with pytest.raises(GenerationError, match="cannot be started again"):
        fail(folder, records, monkeypatch, has_ended, is_stopping)
