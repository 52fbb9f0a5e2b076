"""Whether a run judges while it generates or afterwards, and what it needs at which time."""

from __future__ import annotations

from typing import Any

import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.errors import ConfigError, ResourceError
from memray_eval.execution.capacity import Capacity, Node
from memray_eval.execution.executors import choose_phases, duration_text
from memray_eval.execution.plan import ENGINES, JUDGES
from memray_eval.execution.prepare.checks import decide_phases
from memray_eval.execution.prepare.resolve import resolve
from memray_eval.execution.prepare.scanning import scan_dataset
from memray_eval.execution.prepare.stored_config import apply_resume_settings
from memray_eval.execution.resume_state import ResumeState, UnitIdSet
from memray_eval.execution.run_plan import RunSpec
from memray_eval.execution.schedule import check_turns, pools_in_turn, schedule
from tests.conftest import SAMPLES

GPU, CPU, HEAD = Node(cpus=4, gpus=1), Node(cpus=8), Node(cpus=0)
URL = "http://127.0.0.1:9/v1"
SERVED = {"name": "s", "model": "org/s", "backend": "openai", "base_url": URL}
JUDGE = "openai/local"


def config(**changes: Any) -> RunConfig:
    """One model on GPUs, judged by a model behind a server."""
    judging = {"base_urls": {"openai": URL}, "limits": {JUDGE: {"requests_per_min": 60}}}
    data = {
        "dataset": str(SAMPLES),
        "candidates": [{"name": "a", "model": "org/a"}],
        "metrics": ["empathy", "politeness"],
        "judge": JUDGE,
        "engine": {"device": "gpu"},
        "assumptions": {"engine_tokens_per_s": 1000},
    }
    judging = {"judging": judging | changes.get("judging", {})}
    return RunConfig.model_validate(data | changes | judging)


def spec(phases: str = "together", **changes: Any) -> RunSpec:
    return resolve(config(cluster={"phases": phases}, **changes))


def capacity(*nodes: Node) -> Capacity:
    cpus, gpus = sum(node.cpus for node in nodes), sum(node.gpus for node in nodes)
    return Capacity(where="here", cpus=cpus, gpus=gpus, memory_gib=1000, nodes=nodes)


@pytest.mark.parametrize(
    ("job", "order"),
    [
        (resolve(config()), "together"),
        (spec("together"), "together"),
        (spec("apart"), "apart"),
        (spec("apart", candidates=[SERVED]), "apart"),
    ],
)
def test_the_order_is_the_job_s(job: RunSpec, order: str) -> None:
    assert choose_phases(job) == (order, "cluster.phases says so")


def test_what_has_nothing_to_generate_or_to_score_has_no_phases() -> None:
    def choose(job: RunSpec, **facts: bool) -> str:
        return choose_phases(job, **facts).order

    existing = [{"name": "given", "model": "given", "backend": "given"}]
    assert choose(resolve(config(cluster={"phases": "apart"}), generate_only=True)) == "together"
    assert choose(spec("apart", candidates=existing)) == "together"
    assert choose(spec("together"), is_generated=True) == "judge"


def test_the_rest_of_a_run_decides_when_it_goes_on() -> None:
    job = spec("apart")
    scan = scan_dataset(job.read, [])
    units = [f"{number:016x}" for number in range(scan.n_samples)]

    def order(n_finished: int, n_generated: int) -> str:
        finished, generated = units[:n_finished], units[n_finished : n_finished + n_generated]
        state = ResumeState(UnitIdSet(finished), UnitIdSet(generated))
        return decide_phases(job, scan, state).order

    assert order(0, 0) == "apart"
    assert order(119, 0) == "apart"
    assert order(0, 119) == "apart"
    assert order(20, 100) == "judge"


def test_a_resumed_run_may_change_its_phases() -> None:
    assert apply_resume_settings(config(), ["cluster.phases=apart"]).cluster.phases == "apart"
    with pytest.raises(ValueError, match="phases"):
        config(cluster={"phases": "later"})
    with pytest.raises(ConfigError, match=r"cluster\.phases=auto was withdrawn: write `apart`"):
        apply_resume_settings(config(), ["cluster.phases=auto"])
    with pytest.raises(ConfigError, match="was withdrawn: write how many there are"):
        apply_resume_settings(config(), ["judging.actors={min: 1, max: 2}"])


def test_judging_apart_needs_no_engine_and_generating_no_judge() -> None:
    job = spec(judging={"actors": 3})
    room = capacity(GPU, CPU)
    (together,) = pools_in_turn(job, room, "gpu", "together")
    generating, judging = pools_in_turn(job, room, "gpu", "apart")
    assert {ENGINES, JUDGES} <= {pool.name for pool in together}
    assert JUDGES not in {pool.name for pool in generating}
    assert sum(pool.gpus for pool in judging) == 0
    assert [pool.actors for pool in judging if pool.name == JUDGES] == [3]
    assert pools_in_turn(job, room, "gpu", "judge") == [judging]


def test_engines_that_leave_no_cpu_to_judges_fit_apart() -> None:
    job = spec(engine={"device": "gpu", "cpus": 4.0}, judging={"actors": 1, "cpus": 4})
    tight = capacity(GPU, CPU.model_copy(update={"cpus": 4.46}))
    with pytest.raises(ResourceError, match=r"needs 8\.49 CPUs and here has 8\.46"):
        check_turns(job, tight, "together")
    check_turns(job, tight, "apart")
    with pytest.raises(ResourceError, match="judges: 1 x 4"):
        check_turns(job, capacity(GPU.model_copy(update={"cpus": 4.3})), "apart")


def test_models_come_side_by_side_where_no_judge_takes_their_room() -> None:
    names = [{"name": name, "model": f"org/{name}"} for name in "ab"]
    job = spec(candidates=names, engine={"device": "gpu", "cpus": 3.6}, judging={"actors": 2})
    room = capacity(GPU, GPU)
    assert len(schedule(job, room, "gpu")) == 2
    assert len(schedule(job, room, "gpu", scores=False)) == 1


def test_judges_are_counted_on_nodes_without_gpus() -> None:
    assert capacity(GPU, CPU, CPU).cpus_beside_gpus == 16
    assert capacity(GPU).cpus_beside_gpus == 4  # there is nothing else
    alone = Capacity(where="this machine", cpus=2, gpus=1, memory_gib=8)
    assert alone.cpus_beside_gpus == 2


@pytest.mark.parametrize(
    ("seconds", "text"), [(90, "90 s"), (720, "12 min"), (7200, "2.0 h"), (113_610, "31.6 h")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
