"""What becomes of a run whose engines die, or whose cluster grows and shrinks: `python -m
tests.engine_kills [CASE]...` prints the table, a minute a line on two cores.

Each case is a run of the command line on a cluster of its own: several nodes of this machine with
GPUs that are not there, and in vLLM's place tests/clusters/dying_engine.py, whose engines are real
processes and count what they are asked. With MEMRAY_EVAL_ENGINES=1 two real engines of the
embedded model come last."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memray_eval.config.sections import EngineConfig
from tests.clusters.dying_engine import Deaths, Start, most_at_once, read_asked, read_starts

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

UNITS, BATCH, AT_ONCE = 160, 2, 2  # rows, rows of a batch, batches in flight in an engine
KILL_AT = 30  # prompts asked, when a case begins to meddle
LIMIT_S = 500.0
REPOSITORY = Path(__file__).parent.parent
RANGE = {"min": 1, "max": 4}
NO_DEATHS = Deaths()


@dataclass(frozen=True)
class Stage:
    """A running case: its cluster, the nodes beside the head, and the engines' books."""

    cluster: Cluster
    nodes: list[Any]
    books: Path

    def starts(self, at_least: int) -> list[Start]:
        """The starts so far, once there are so many."""
        deadline = time.monotonic() + 60
        while len(found := read_starts(self.books)) < at_least:
            assert time.monotonic() < deadline, f"{len(found)} engines are up"
            time.sleep(0.05)
        return found

    def add_node(self, gpus: int) -> None:
        self.nodes.append(self.cluster.add_node(num_cpus=2, num_gpus=gpus))

    def lose(self, node: int, is_graceful: bool = False) -> None:
        self.cluster.remove_node(self.nodes[node], allow_graceful=is_graceful)


def kill_child(stage: Stage) -> None:
    os.kill(stage.starts(4)[0].child, signal.SIGKILL)


def kill_actor(stage: Stage) -> None:
    os.kill(stage.starts(4)[0].pid, signal.SIGKILL)


def kill_one_of_two(stage: Stage) -> None:
    os.kill(stage.starts(2)[0].pid, signal.SIGKILL)


def kill_core_of_two(stage: Stage) -> None:
    os.kill(stage.starts(2)[0].child, signal.SIGKILL)


def kill_all(stage: Stage) -> None:
    for start in stage.starts(4):
        os.kill(start.pid, signal.SIGKILL)


def lose_node(stage: Stage) -> None:
    stage.starts(4)
    stage.lose(0)


def drain_node(stage: Stage) -> None:
    stage.starts(4)
    stage.lose(0, is_graceful=True)


def grow(stage: Stage) -> None:
    stage.starts(1)
    stage.add_node(gpus=3)


def lose_and_grow(stage: Stage) -> None:
    lose_node(stage)
    time.sleep(2)
    stage.add_node(gpus=2)


def add_cpus(stage: Stage) -> None:
    stage.nodes.append(stage.cluster.add_node(num_cpus=4))


def do_nothing(stage: Stage) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is tried. `nodes` are the GPUs of each node beside the head, which has `head_cpus`;
    `engines` come up in all, starts anew included. At most `repeats` prompts are asked again."""

    tried: str
    did: str
    meddle: Callable[[Stage], None] = do_nothing
    replicas: int | Mapping[str, int] = 4
    nodes: Sequence[int] = (2, 2)
    head_cpus: int = 4
    deaths: Deaths = NO_DEATHS
    engines: Sequence[int] = (4,)
    repeats: int = 0
    code: int = 0
    told: str = ""
    judges: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    units: int = UNITS
    is_real: bool = False
    row_s: float = 0.3
    kill_at: int = KILL_AT


LOST = BATCH * AT_ONCE  # prompts that one engine works on
NOTICED = 4 * LOST  # by calls on their way when a node is gone, of two engines
CASES: Mapping[str, Case] = {
    "none": Case(tried="nothing", did="four engines answered"),
    "child": Case(
        tried="an engine's own process, kill -9",
        did="its actor ended, the others took its prompts, it came up again",
        meddle=kill_child,
        engines=(4, 5),
        repeats=LOST,
    ),
    "actor": Case(
        tried="an engine's actor, kill -9",
        did="the others took its prompts, it came up again",
        meddle=kill_actor,
        engines=(4, 5),
        repeats=LOST,
    ),
    "all": Case(
        tried="all four actors, kill -9",
        did="all came up again",
        meddle=kill_all,
        engines=(8,),
        repeats=4 * LOST,
    ),
    "node": Case(
        tried="a node with two engines, for good",
        did="the other two answered the rest",
        meddle=lose_node,
        repeats=NOTICED,
    ),
    "node-with-clients": Case(
        tried="the same where clients have no other nodes",
        did="clients came up elsewhere and asked the other two",
        meddle=lose_node,
        head_cpus=0,
        engines=(4, 5, 6),
        repeats=NOTICED,
    ),
    "node-at-the-end": Case(
        tried="the same when all prompts are under way",
        did="engines whose own prompts were done stayed for the others'",
        meddle=lose_node,
        repeats=2 * LOST,
        units=4 * LOST,
        row_s=15.0,
        kill_at=4 * LOST,
    ),
    "node-replaced": Case(
        tried="a node with two engines, and another comes",
        did="its engines came up there",
        meddle=lose_and_grow,
        engines=(5, 6),
        repeats=NOTICED,
    ),
    "always": Case(
        tried="one of four dies on every start (kill -9)",
        did="the run stopped with the end of its log",
        deaths=Deaths(times=99),
        engines=(0, 1, 2, 3),
        code=3,
        told="an engine of embedded died 3 times while it started\nThe last lines of its log:\n  ",
        units=-1,
    ),
    "always-error": Case(
        tried="one of four fails on every start (an error)",
        did="the run stopped with the end of its log",
        deaths=Deaths(times=99, how="error"),
        engines=(0, 1, 2, 3),
        code=3,
        told="RuntimeError: Engine core initialization failed",
        units=-1,
    ),
    "always-elastic": Case(
        tried="the same, of 1 to 4 engines",
        did="the run went on with three, and said so",
        replicas=RANGE,
        deaths=Deaths(times=99, how="error"),
        engines=(3,),
        told="The run goes on with",
    ),
    "once": Case(
        tried="one dies at its first start (kill -9)",
        did="it came up at its second",
        deaths=Deaths(times=1),
    ),
    "once-error": Case(
        tried="one fails at its first start (an error)",
        did="it came up at its second",
        deaths=Deaths(times=1, how="error"),
    ),
    "grows": Case(
        tried="1 to 4 engines, room for one; a node with 3 GPUs comes",
        did="three more came up there",
        meddle=grow,
        replicas=RANGE,
        nodes=(1,),
        engines=(4,),
    ),
    "room-for-all": Case(
        tried="1 to 4 engines, room for all",
        did="four started at once",
        replicas=RANGE,
    ),
    "room-for-one": Case(
        tried="1 to 4 engines, room for one, and none comes",
        did="the one answered all",
        replicas=RANGE,
        nodes=(1,),
        engines=(1,),
    ),
    "shrinks": Case(
        tried="1 to 4 engines; a node of two is taken away",
        did="the other two answered the rest",
        meddle=drain_node,
        replicas=RANGE,
        repeats=NOTICED,
    ),
    "no-room": Case(
        tried="at least 6 engines, room for four",
        did="refused, with what lacks",
        replicas={"min": 6, "max": 8},
        engines=(0,),
        code=3,
        told="the plan needs 6 GPUs and the cluster at",
        units=-1,
    ),
    "judges": Case(
        tried="1 to 3 judge actors of a CPU each, room for one; a node with CPUs comes",
        did="three judged",
        meddle=add_cpus,
        replicas=2,
        nodes=(2,),
        head_cpus=2,
        engines=(2,),
        judges=3,
        options={"metrics": ["empathy"], "judge": "openai/judge"},
    ),
    "staggered": Case(
        tried="four engines of one node, one load at a time",
        did="no two loaded at once",
        nodes=(4,),
        options={"starts_at_once": 1},
    ),
}


# Two real engines on CPUs: minutes, and 8 GB of memory
REAL_UNITS = 400
REAL_CASES: Mapping[str, Case] = {
    "vllm-actor": Case(
        tried="two vLLM engines; the actor of one, kill -9",
        did="the other took its prompts",
        meddle=kill_one_of_two,
        replicas=2,
        nodes=(0,),
        engines=(2, 3),
        repeats=LOST,
        options={"cpus": 1.0, "device": "cpu"},
        units=REAL_UNITS,
        is_real=True,
        kill_at=12,
    ),
    "vllm-core": Case(
        tried="two vLLM engines; the EngineCore process of one, kill -9",
        did="the other took its prompts",
        meddle=kill_core_of_two,
        replicas=2,
        nodes=(0,),
        engines=(2, 3),
        repeats=LOST,
        options={
            "cpus": 1.0,
            "device": "cpu",
            "engine_kwargs": {"distributed_executor_backend": "mp"},
        },
        units=REAL_UNITS,
        is_real=True,
        kill_at=12,
    ),
}


@dataclass(frozen=True)
class Played:
    """What came of a case: the exit code, rows and units in the records (-1: no run folder), failed
    units, prompts asked again, engines that came up, loads at once on a node, seconds, groups left,
    judge actors at most, and what the command line said."""

    code: int
    rows: int
    units: int
    failed: int
    repeats: int
    engines: int
    at_once: int
    judges: int
    seconds: float
    groups_left: int
    said: str


def play(name: str) -> Played:
    """Plays a case in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="kills-", dir="/tmp") as folder:
        command = [sys.executable, "-m", "tests.engine_kills", "--play", name, folder]
        began = time.monotonic()
        done = subprocess.run(
            command,
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        return _count(Path(folder), done.returncode, time.monotonic() - began, done.stdout)


def _count(folder: Path, code: int, seconds: float, said: str) -> Played:
    from memray_eval.results.run_folder import RunFolder

    rows, units, failed = -1, -1, -1
    for path in folder.glob("out/*/run.yaml"):
        run = RunFolder(str(path.parent))
        records = list(run.each()) if run.parts() else []
        rows, units = len(records), len({record.unit_id for record in records})
        failed = sum(record.is_failed for record in records)
    asked, starts = read_asked(folder), read_starts(folder)
    left = folder / "groups"
    return Played(
        code=code,
        rows=rows,
        units=units,
        failed=failed,
        repeats=len(asked) - len(set(asked)),
        engines=len(starts),
        at_once=most_at_once(starts) if starts else 0,
        judges=int(judges.read_text()) if (judges := folder / "judges").exists() else 0,
        seconds=seconds,
        groups_left=int(left.read_text()) if left.exists() else -1,
        said=said,
    )


def problems(case: Case, played: Played) -> list[str]:
    """What is other than expected."""
    found = []
    if played.code != case.code:
        found.append(f"exit code {played.code}")
    if case.units >= 0 and (played.rows, played.units, played.failed) != (case.units,) * 2 + (0,):
        found.append(f"{played.rows} rows, {played.units} units, {played.failed} failed")
    if played.repeats > case.repeats:
        found.append(f"{played.repeats} prompts again")
    if played.engines not in case.engines:
        found.append(f"{played.engines} engines came up")
    if played.at_once > case.options.get("starts_at_once", 2):
        found.append(f"{played.at_once} loaded at once on a node")
    if case.judges and played.judges != case.judges:
        found.append(f"{played.judges} judge actors")
    if case.told not in played.said:
        found.append(f"it did not say {case.told!r}")
    if "Traceback" in played.said:
        found.append("a traceback")
    if played.groups_left:
        found.append(f"{played.groups_left} placement groups left")
    return found


def main(names: Sequence[str]) -> int:
    """Plays cases and prints a line each; how many ended otherwise than expected."""
    n_wrong = 0
    print("| tried | what happened | rows of units | asked again | engines | s |")
    print("|---|---|---|---|---|---|", flush=True)
    cases = {**CASES, **REAL_CASES}
    real = REAL_CASES if "MEMRAY_EVAL_ENGINES" in os.environ else {}
    for name in names or [*CASES, *real]:
        case, played = cases[name], play(name)
        wrong = problems(case, played)
        n_wrong += bool(wrong)
        happened = f"**{'; '.join(wrong)}**" if wrong else case.did
        rows = f"{played.rows} of {played.units}" if played.rows >= 0 else "no run"
        print(
            f"| {case.tried} | {happened} | {rows} | {played.repeats} | {played.engines} | "
            f"{played.seconds:.0f} |",
            flush=True,
        )
        if wrong:
            print(f"\n{name}: {asdict(played)}\n{played.said}", file=sys.stderr)
    return n_wrong


def job(case: Case, folder: Path, address: str) -> dict[str, Any]:
    options = dict(case.options)
    ours = {key: options.pop(key) for key in list(options) if key in EngineConfig.model_fields}
    rows = [
        {"id": f"s{n}", "query": f"What is fact {n}?", "answers": ["x"]}
        | {"context": f"Text {n}.", "metadata": {"rule": "qa_f1"}}
        for n in range(UNITS if case.units < 0 else case.units)
    ]
    data = folder / "data.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))
    engine = {"device": "gpu", "replicas": case.replicas, "cpus": 0.1, "batch_size": BATCH}
    engine |= {"concurrent_batches": AT_ONCE, **ours}
    return {
        "suite": "longbench",
        "dataset": str(data),
        "candidates": [{"name": "one", "model": "embedded", "sampling": {"max_tokens": 32}}],
        "metrics": ["rule_score"],
        "judge": "rules",
        "engine": engine,
        "cluster": {"no_progress_timeout_s": 300 if case.is_real else 90, "address": address},
        "out": str(folder / "out"),
        **options,
    }


@contextmanager
def judging(folder: Path) -> Iterator[dict[str, Any]]:
    """A judge's server, and the section of a job whose judges ask it."""
    from tests.servers.judgments import judgment_reply
    from tests.servers.provider import serving

    os.environ["OPENAI_API_KEY"] = "key-of-nobody"  # before Ray's workers start
    with serving(judgment_reply, latency_s=1.0) as server:
        yield {
            "actors": {"min": 1, "max": 3},
            "cpus": 1.0,
            "max_in_flight": 2,
            "base_urls": {"openai": server.base_url},
            "cache": str(folder / "calls.sqlite"),
        }


def watch_judges(folder: Path) -> None:
    """Writes down how many judge actors there were at most."""
    import ray

    most = 0
    while True:
        time.sleep(0.5)
        with suppress(Exception):  # Ray is not there yet, or no more
            actors = ray._private.state.actors().values()
            up = [actor for actor in actors if actor["State"] == "ALIVE"]
            most = max(most, sum("JudgeRecords" in actor["ActorClassName"] for actor in up))
            (folder / "judges").write_text(str(most))


def play_here(name: str, folder: Path, stack: ExitStack) -> int:
    """A case in this process; its exit code is that of the command line."""
    import ray
    from ray.cluster_utils import Cluster
    from ray.util.placement_group import placement_group_table

    from memray_eval.cli import main as command_line
    from memray_eval.execution.ray import engine
    from memray_eval.execution.ray.cluster import _QUIET
    from tests.clusters.dying_engine import counted_engine, dying_engine

    case = {**CASES, **REAL_CASES}[name]
    os.environ.update({name: value for name, value in _QUIET.items() if name not in os.environ})
    head = {"num_cpus": case.head_cpus, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [cluster.add_node(num_cpus=2, num_gpus=gpus) for gpus in case.nodes]
    # A node that is added later is added by a thread, where no handler can be set
    ray._private.utils.set_sigterm_handler = lambda handler: None
    end_connection = ray.shutdown

    def count_groups() -> None:  # before they end with the command line's job
        if ray.is_initialized():
            groups = placement_group_table().values()
            left = sum(group["state"] != "REMOVED" for group in groups)
            (folder / "groups").write_text(str(left))
        end_connection()

    ray.shutdown = count_groups
    vllm_engine = engine.telling_engine

    def counting(context: Any) -> type:
        if case.is_real:
            return counted_engine(vllm_engine(context), folder)
        return dying_engine(folder, case.row_s, deaths=case.deaths)

    engine.telling_engine = counting
    path = folder / "job.yaml"
    written = job(case, folder, cluster.address)
    if case.judges:
        written["judging"] = stack.enter_context(judging(folder))
        threading.Thread(target=watch_judges, args=(folder,), daemon=True).start()
    path.write_text(json.dumps(written))

    def meddle() -> None:
        while len(read_asked(folder)) < case.kill_at:
            time.sleep(0.05)
        case.meddle(Stage(cluster, nodes, folder))
        threading.Event().wait()  # a node that this thread has added ends with it

    threading.Thread(target=meddle, daemon=True).start()
    sys.argv = ["memray-eval", "run", str(path)]
    code: Any = 0
    try:
        command_line()
    except SystemExit as end:
        code = end.code
    cluster.shutdown()
    return int(code or 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--play"]:
        with ExitStack() as closing:
            sys.exit(play_here(sys.argv[2], Path(sys.argv[3]), closing))
    sys.exit(main(sys.argv[1:]))
