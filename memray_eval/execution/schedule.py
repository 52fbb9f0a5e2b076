"""Which models' engines run side by side, and which wait. Pure, but for `run_waves`."""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from itertools import chain
from threading import Event, Thread
from typing import TypeAlias

from memray_eval.execution.plan import (
    Capacity,
    Device,
    Pool,
    check_room,
    engine_device,
    explain_lack,
    judge_actors,
    judge_engine_pools,
    judging_pools,
    pipeline_pools,
    tail_pools,
)
from memray_eval.execution.run_plan import Group, PhaseOrder, RunSpec, engine_groups

Wave: TypeAlias = tuple[Group, ...]  # groups whose pipelines run side by side
# To be called when the first engine of a group has ended; None if no wave waits for that
OnEngineEnd: TypeAlias = Callable[[], None] | None
Work: TypeAlias = Callable[[Group, OnEngineEnd], None]

LOOK_S = 0.5  # between two looks whether the next wave may begin


def schedule(spec: RunSpec, capacity: Capacity, device: Device, scores: bool = True) -> list[Wave]:
    """The groups of a run's candidates in the order they run, those of one wave side by side: at
    most `cluster.models_at_once`; with `auto` as many as find room on GPUs, and one at a time on
    CPUs, where engines would only share the cores. `scores`: each pipeline has judges too."""
    at_once = spec.config.cluster.models_at_once
    most = at_once if at_once != "auto" else 1 if device == "cpu" else len(spec.config.candidates)
    waves: list[Wave] = []
    for group in engine_groups(spec.config.candidates):
        joined = (*waves[-1], group) if waves else (group,)
        pools = wave_pools(spec, joined, capacity, device, scores)
        fits = at_once != "auto" or explain_lack(pools, capacity) is None
        if waves and len(joined) <= most and fits:
            waves[-1] = joined
        else:
            waves.append((group,))
    return waves


def wave_pools(
    spec: RunSpec, wave: Sequence[Group], capacity: Capacity, device: Device, scores: bool = True
) -> list[Pool]:
    """The pools of all pipelines of a wave; they share the engines of an embedded judge. `scores`
    as in `schedule`: without, only the affect stage may ask that judge."""
    shared = judge_engine_pools(spec, device) if scores or spec.asks_embedded_first else []
    actors = judge_actors(spec, capacity.cpus, len(wave))
    own = (pipeline_pools(spec, group, device, actors, scores) for group in wave)
    return [*shared, *chain.from_iterable(own)]


def pools_in_turn(
    spec: RunSpec, capacity: Capacity, device: Device, order: PhaseOrder
) -> list[list[Pool]]:
    """The pools of a run, those that are up at the same time together, in the order they come."""
    judging = judging_pools(spec, device, judge_actors(spec, capacity.cpus_beside_gpus))
    if order == "judge":
        return [judging]
    scores = order == "together"
    waves = schedule(spec, capacity, device, scores)
    turns = [wave_pools(spec, wave, capacity, device, scores) for wave in waves]
    return turns if scores else [*turns, judging]


def check_turns(spec: RunSpec, capacity: Capacity, order: PhaseOrder) -> None:
    """Raises ResourceError if a part of the run does not fit."""
    device = engine_device(spec, capacity.all_gpus)
    for pools in pools_in_turn(spec, capacity, device, order):
        check_room(pools, capacity)


def pools_beside(
    spec: RunSpec,
    tails: Sequence[Wave],
    wave: Wave,
    capacity: Capacity,
    device: Device,
    scores: bool = True,
) -> list[Pool]:
    """The pools of a wave, and the judges, embedders and writers left of earlier ones."""
    left = (
        tail_pools(spec, judge_actors(spec, capacity.cpus, len(tail)), scores) * len(tail)
        for tail in tails
    )
    return [*chain.from_iterable(left), *wave_pools(spec, wave, capacity, device, scores)]


class _Pipelines:
    """The started pipelines, each in a daemon thread: a second interrupt does not wait for them."""

    def __init__(self) -> None:
        self.futures: dict[Future[None], tuple[Wave, Event]] = {}

    def start(self, work: Work, wave: Wave, group: Group, is_last: bool) -> None:
        done, is_ending = Future[None](), Event()
        self.futures[done] = wave, is_ending

        def run() -> None:
            try:
                work(group, None if is_last else is_ending.set)
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        Thread(target=run, daemon=True, name="pipeline").start()

    def tails(self) -> list[Wave] | None:
        """The waves that are not over ([]: one has failed); None if the engines of one go on."""
        left = [pair for future, pair in self.futures.items() if not future.done()]
        if self.have_failed():
            return []
        if not all(is_ending.is_set() for _, is_ending in left):
            return None
        return list({id(wave): wave for wave, _ in left}.values())

    def have_failed(self) -> bool:
        return any(future.done() and future.exception() for future in self.futures)


def run_waves(
    waves: Sequence[Wave],
    begin: Callable[[Wave, Sequence[Wave]], Work],
    has_room: Callable[[Sequence[Wave], Wave], bool],
    stop: Callable[[str], object],
) -> None:
    """Does the work for each group, a thread each: that of a wave side by side, and one wave after
    the other. `begin(wave, tails)` returns a wave's work. A wave begins when those before it are
    over, or their engines begin to end and `has_room(tails, wave)`. When one group fails, the
    others end what is under way; then its error is raised."""
    if [len(wave) for wave in waves] == [1]:
        begin(waves[0], ())(waves[0][0], None)
        return
    pipelines = _Pipelines()
    try:
        for wave in waves:
            while (tails := pipelines.tails()) is None or (tails and not has_room(tails, wave)):
                wait(pipelines.futures, LOOK_S, FIRST_EXCEPTION)
            if pipelines.have_failed():
                break
            work = begin(wave, tails)
            for group in wave:
                pipelines.start(work, wave, group, is_last=wave is waves[-1])
        wait(pipelines.futures, return_when=FIRST_EXCEPTION)
        if pipelines.have_failed():
            stop("another model's pipeline failed")
        wait(pipelines.futures)
    except BaseException:
        stop("interrupted")
        raise
    for future in pipelines.futures:
        future.result()
