"""What becomes of a pipeline that fails when its engines have given their nodes away."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from memray_eval.errors import GenerationError
from memray_eval.execution.ray import executor
from memray_eval.execution.ray.executor import RayExecutor
from memray_eval.execution.schedule import OnEngineEnd
from memray_eval.results.run_folder import RECORDS, RESPONSES, RunFolder
from memray_eval.results.schema import to_table
from tests.build import build_record, build_sample


@dataclass(frozen=True)
class Plan:
    spec: Any = None
    resume_state: Any = None


@dataclass(frozen=True)
class Setup:
    plan: Plan
    context: Any


RECORDS_OF_RUN = [build_record(build_sample(id=f"s{number}"), "Rest more.") for number in range(3)]
GROUP = (RECORDS_OF_RUN[0].candidate,)


def fail(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, has_ended: bool, is_stopping: bool = False
) -> Setup:
    """Runs a pipeline that has written all responses and one record when it fails; what was judged
    then."""

    def run_pipeline(setup: Setup, group: Any, on_engine_end: OnEngineEnd) -> None:
        folder.write_part(to_table(RECORDS_OF_RUN), RESPONSES)
        folder.write_part(to_table(RECORDS_OF_RUN[:1]), RECORDS)
        if has_ended:
            on_engine_end()
        raise GenerationError("an engine cannot be started again")

    judge_waiting, on_engine_end = Mock(), Mock()
    monkeypatch.setattr(executor, "run_pipeline", run_pipeline)
    monkeypatch.setattr(executor, "judge_waiting", judge_waiting)
    setup = Setup(Plan(), SimpleNamespace(is_stopping=lambda: is_stopping))
    try:
        RayExecutor(setup.plan, folder)._run_pipeline(setup, GROUP, on_engine_end)
    finally:
        assert on_engine_end.called is has_ended
    ((judged, group),) = (call.args for call in judge_waiting.call_args_list)
    assert group == GROUP
    return judged


def test_what_it_generated_is_judged_from_the_runs_folder(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = fail(folder, monkeypatch, has_ended=True).plan.resume_state
    generated = [record.unit_id in state.generated for record in RECORDS_OF_RUN]
    assert generated == [False, True, True]
    assert list(state.waiting) == folder.parts(RESPONSES)


@pytest.mark.parametrize(("has_ended", "is_stopping"), [(False, False), (True, True)])
def test_any_other_failure_ends_the_run(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, has_ended: bool, is_stopping: bool
) -> None:
    with pytest.raises(GenerationError, match="cannot be started again"):
        fail(folder, monkeypatch, has_ended, is_stopping)
