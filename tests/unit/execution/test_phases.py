"""Phases of a run: which come when, on what nodes, and what stages do in each."""

import asyncio
from typing import Any

import pyarrow as pa
import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import MetricOptions
from memray_eval.errors import ConfigError, ResourceError
from memray_eval.execution.executors import choose_phases, duration_text
from memray_eval.execution.plan import ENGINES, JUDGES, Capacity, Node
from memray_eval.execution.prepare.origins import apply_resume_settings
from memray_eval.execution.prepare.resolve import resolve
from memray_eval.execution.prepare.scanning import scan_dataset
from memray_eval.execution.resume_state import ResumeState, UnitIdSet
from memray_eval.execution.run_counter import EnginePhase, EnginePhases, RunCounter
from memray_eval.execution.run_plan import RunPlan, RunSpec
from memray_eval.execution.schedule import check_turns, pools_in_turn, schedule
from memray_eval.execution.stages.blocks import PART, finish_ungenerated, read_waiting
from memray_eval.execution.stages.context import StageContext
from memray_eval.execution.stages.generate import embed_records
from memray_eval.execution.stages.judge import JudgingOptions, judge_record
from memray_eval.metrics import pick
from memray_eval.results.run_folder import RECORDS, RESPONSES, RunFolder
from memray_eval.results.schema import from_table, to_table
from memray_eval.types import Record, Response
from tests.build import GIVEN
from tests.conftest import SAMPLES
from tests.unit.execution.near import FakeEmbedder, FakeJudge, cluster

GPU, CPU = Node(cpus=4, gpus=1), Node(cpus=8)
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


UNSCORED = resolve(config(cluster={"phases": "apart"}), generate_only=True)


@pytest.mark.parametrize(
    ("job", "is_generated", "expected"),
    [
        (spec("together"), False, ("together", "cluster.phases says so")),
        (spec("apart"), False, ("apart", "cluster.phases says so")),
        (spec("apart", candidates=[SERVED]), False, ("apart", "cluster.phases says so")),
        (UNSCORED, False, ("together", "nothing is scored")),
        (spec("apart", candidates=[GIVEN]), False, ("together", "the responses exist already")),
        (spec("together"), True, ("judge", "everything is generated already")),
    ],
)
def test_the_order_is_the_jobs_unless_there_is_nothing_to_generate_or_to_score(
    job: RunSpec, is_generated: bool, expected: tuple[str, str]
) -> None:
    assert choose_phases(job, is_generated=is_generated) == expected


def test_the_rest_of_a_run_decides_when_it_goes_on() -> None:
    job = spec("apart")
    scan = scan_dataset(job.read, [])
    units = [f"{number:016x}" for number in range(scan.n_samples)]

    def order(n_finished: int, n_generated: int) -> str:
        finished, generated = units[:n_finished], units[n_finished : n_finished + n_generated]
        state = ResumeState(UnitIdSet(finished), UnitIdSet(generated))
        plan = RunPlan(spec=job, scan=scan, capacity=cluster(CPU), started=0.0, resume_state=state)
        return choose_phases(job, is_generated=plan.is_generated).order

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
    room = cluster(GPU, CPU)
    (together,) = pools_in_turn(job, room, "gpu", "together")
    generating, judging = pools_in_turn(job, room, "gpu", "apart")
    assert {ENGINES, JUDGES} <= {pool.name for pool in together}
    assert JUDGES not in {pool.name for pool in generating}
    assert sum(pool.gpus for pool in judging) == 0
    assert [pool.actors for pool in judging if pool.name == JUDGES] == [3]
    assert pools_in_turn(job, room, "gpu", "judge") == [judging]


def test_engines_that_leave_no_cpu_to_judges_fit_apart() -> None:
    job = spec(engine={"device": "gpu", "cpus": 4.0}, judging={"actors": 1, "cpus": 4})
    tight = cluster(GPU, CPU.model_copy(update={"cpus": 4.26}))
    with pytest.raises(ResourceError, match=r"needs 8\.29 CPUs and the cluster has 8\.26"):
        check_turns(job, tight, "together")
    check_turns(job, tight, "apart")
    large = spec(engine={"device": "gpu", "cpus": 4.0}, judging={"actors": 1, "cpus": 5})
    with pytest.raises(ResourceError, match="judges: 1 x 5"):
        check_turns(large, cluster(GPU.model_copy(update={"cpus": 4.3})), "apart")


def test_models_come_side_by_side_where_no_judge_takes_their_room() -> None:
    names = [{"name": name, "model": f"org/{name}"} for name in "ab"]
    job = spec(candidates=names, engine={"device": "gpu", "cpus": 3.7}, judging={"actors": 2})
    room = cluster(GPU, GPU)
    assert len(schedule(job, room, "gpu")) == 2
    assert len(schedule(job, room, "gpu", scores=False)) == 1


def test_judges_are_counted_on_nodes_without_gpus() -> None:
    assert cluster(GPU, CPU, CPU).cpus_beside_gpus == 16
    assert cluster(GPU).cpus_beside_gpus == 4  # there is nothing else
    alone = Capacity(where="this machine", cpus=2, gpus=1, memory_gib=8)
    assert alone.cpus_beside_gpus == 2


@pytest.mark.parametrize(
    ("seconds", "text"), [(90, "90 s"), (720, "12 min"), (7200, "2.0 h"), (113_610, "31.6 h")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


AT_JUDGE, AT_EMBED = ["empathy", "politeness", "readability_score"], ["relevance"]


def unit(record: Record, number: int, error: str | None = None) -> Record:
    response = Response(error=error) if error else Response(text="Rest.")
    return record.model_copy(update={"unit_id": f"{number:016x}", "response": response})


def test_failed_units_get_the_scores_that_both_stages_would_give(
    record: Record, context: StageContext
) -> None:
    units = [unit(record, 1), unit(record, 2, "down"), unit(record, 3, "gone"), unit(record, 4)]
    stages = ["judge", "embed", "write"]
    options, names = MetricOptions(), [*AT_JUDGE, *AT_EMBED]
    folder = RunFolder(context.folder)
    assert finish_ungenerated(to_table(units[:1]), names, options, stages, context).num_rows == 1
    assert (folder.parts(RECORDS), context.counter.reports) == ([], [])  # nothing has failed
    left = finish_ungenerated(to_table(units), names, options, stages, context)
    assert left.to_pylist() == [{"unit_id": f"{number:016x}"} for number in (1, 4)]
    (part,) = folder.parts(RECORDS)
    written = list(from_table(folder.read_part(part)))
    assert [item.unit_id for item in written] == [f"{number:016x}" for number in (2, 3)]

    async def together(failed: Record) -> Record:
        nobody = FakeJudge(AssertionError("a failed response is not judged"))
        judges: Any = {"empathy": [nobody], "politeness": []}
        judged = await judge_record(failed, pick(AT_JUDGE), judges, JudgingOptions())
        embedder = FakeEmbedder(AssertionError("a failed response has no text to embed"))
        (scored,) = await embed_records([judged], pick(AT_EMBED), embedder)
        return scored

    assert written == [asyncio.run(together(failed)) for failed in units[1:3]]
    assert [words[:3] for words in context.counter.reports] == [("add", item, 2) for item in stages]
    assert all(words[-1] == 2 for words in context.counter.reports)


def test_of_a_unit_that_failed_first_only_the_answer_is_judged(
    record: Record, context: StageContext
) -> None:
    folder = RunFolder(context.folder)
    earlier = to_table([unit(record, 1, "down"), unit(record, 2)])
    parts = [folder.write_part(item, RESPONSES) for item in (earlier, to_table([unit(record, 1)]))]
    table, names = pa.table({PART: parts}), [record.candidate.name]
    state = ResumeState(generated=UnitIdSet(f"{number:016x}" for number in (1, 2)))
    waiting = list(from_table(read_waiting(table, state, names, context)))
    assert sorted(item.unit_id for item in waiting) == [f"{number:016x}" for number in (1, 2)]
    assert all(item.response is not None and item.response.error is None for item in waiting)


Entered = list[tuple[float, str, EnginePhase]]  # at a time, an engine, its phase
BOTH_WAIT: Entered = [(0.0, "a", "PENDING"), (5.0, "b", "PENDING")]
BOTH_UP: Entered = [
    *BOTH_WAIT,
    (20.0, "a", "starting"),
    (21.0, "a", "downloading"),
    (50.0, "b", "loading"),
    (60.0, "a", "loading"),
    (61.0, "b", "up"),
    (90.0, "a", "up"),
]


DOWNLOADING = [("PENDING", 1, 25.0), ("downloading", 1, 9.0)]
TOOK = "2 up, after at most 45 s PENDING, 1 s starting, 39 s downloading, 30 s loading."


@pytest.mark.parametrize(
    ("steps", "now", "shown", "line"),
    [
        (BOTH_WAIT, 10.0, [("PENDING", 2, 10.0)], None),
        (BOTH_UP[:4], 30.0, DOWNLOADING, None),
        ([*BOTH_UP[:4], (25.0, "a", "downloading")], 30.0, DOWNLOADING, None),
        (BOTH_UP[:-1], 70.0, [("loading", 1, 10.0), ("up", 1, 9.0)], None),
        (BOTH_UP, 95.0, [], TOOK),
        ([(0.0, "a", "loading"), (9.0, "a", "up")], 9.0, [], "1 up, after at most 9 s loading."),
    ],
)
def test_engines_are_shown_by_phase_while_some_are_not_up_and_said_when_all_are(
    steps: Entered, now: float, shown: list[tuple[EnginePhase, int, float]], line: str | None
) -> None:
    lines = list[str]()
    phases = EnginePhases(lines.append)
    for moment, name, phase in steps:
        phases.enter(name, "m", phase, moment)
    assert [(engines.phase, engines.n, engines.longest_s) for engines in phases.at(now)] == shown
    assert lines == ([] if line is None else [f"Engines of m: {line}"])


def test_a_lost_engine_waits_for_a_node_again_and_one_that_has_ended_is_not_shown() -> None:
    counter = RunCounter()
    for engine in ("a", "b"):
        counter.engines.enter(engine, "m", "up")
    counter.engines.enter("a", None, "PENDING")
    counter.engines.enter("unknown", None, "PENDING")
    shown = [(engines.phase, engines.n) for engines in counter.snapshot(0).engines]
    assert shown == [("PENDING", 1), ("up", 1)]
    counter.engines.end("a")
    assert list(counter.snapshot(0).engines) == []
