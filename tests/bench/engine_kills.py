"""What becomes of a run whose engines die, or whose cluster grows and shrinks: `python -m
tests.bench.engine_kills [CASE]...` prints the table, a minute a line on two cores.

Each case is a run of the command line on a cluster of its own: several nodes of this machine with
GPUs that are not there, and in vLLM's place tests/clusters/fake_engine.py, whose engines are real
processes and count what they are asked. The cases of REAL_CASES have
two real engines of the embedded model, and are played when they are named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from memray_eval.config.sections import EngineConfig
from memray_eval.execution.ray.engine_client import LOST_BESIDE, MOST_DEATHS
from tests.clusters.fake_engine import (
    NO_DEATHS,
    Deaths,
    Start,
    most_at_once,
    read_asked,
    read_starts,
)

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

UNITS, BATCH, AT_ONCE = 160, 2, 2  # rows, rows of a batch, batches in flight in an engine
KILL_AT = 30  # prompts asked, when a case begins to meddle
HANG_S = 900.0  # what takes longer hangs
REPOSITORY = Path(__file__).parents[2]
LONG_BYTES = 2_000  # of a prompt that kills each engine that it reaches


@dataclass(frozen=True)
class Stage:
    """A running case: its cluster, the nodes beside the head, and the engines' books."""

    cluster: Cluster
    nodes: list[Any]
    books: Path

    def starts(self, at_least: int) -> list[Start]:
        """The starts so far, once there are so many."""
        deadline = time.monotonic() + HANG_S
        while len(found := read_starts(self.books)) < at_least:
            assert time.monotonic() < deadline, f"{len(found)} engines are up"
            time.sleep(0.05)
        return found


def kill(stage: Stage, what: Literal["pid", "child"] = "pid", of: int = 4, n: int = 1) -> None:
    """Kills the actors, or the own processes, of n of so many engines once they are up."""
    for start in stage.starts(of)[:n]:
        os.kill(getattr(start, what), signal.SIGKILL)


def change_nodes(
    stage: Stage,
    up: int = 4,
    loses: bool = False,
    is_graceful: bool = False,
    adds: Mapping[str, int] | None = None,
) -> None:
    """Takes the first node away, or adds one, or both, once so many engines are up."""
    stage.starts(up)
    if loses:
        stage.cluster.remove_node(stage.nodes[0], allow_graceful=is_graceful)
    if adds is not None:
        time.sleep(2 * loses)
        stage.nodes.append(stage.cluster.add_node(**adds))


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is tried. `nodes` are the GPUs of each node beside the head, which has `head_cpus`; with
    none it is a machine's own Ray. `engines` come up in all, starts anew included. At most
    `repeats` prompts are asked again; `failed` of `units` fail, whose prompts are long."""

    tried: str
    did: str
    meddle: Callable[[Stage], None] | None = None
    replicas: int | Mapping[str, int] = 4
    nodes: Sequence[int] = (2, 2)
    head_cpus: int = 4
    deaths: Deaths = NO_DEATHS
    engines: Collection[int] = (4,)
    repeats: int = 0
    failed: int = 0
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
LOSES_NODE = partial(change_nodes, loses=True)
DIES = Case(
    tried="an engine's actor, kill -9",
    did="the others took its prompts, it came up again",
    meddle=kill,
    engines=(4, 5),
    repeats=LOST,
)
LOST_NODE = Case(
    tried="a node with two engines, for good",
    did="the other two answered the rest",
    meddle=LOSES_NODE,
    repeats=NOTICED,
)
NEVER_UP = Case(
    tried="one of four dies on every start (kill -9)",
    did="the run stopped with the end of its log",
    deaths=Deaths(times=99),
    engines=(0, 1, 2, 3),
    code=3,
    told="an engine of embedded died 3 times while it started\nThe last lines of its log:\n  ",
    units=-1,
)
UP_AT_SECOND = Case(
    tried="one dies at its first start (kill -9)",
    did="it came up at its second",
    deaths=Deaths(times=1),
)
ELASTIC = Case(
    tried="1 to 4 engines, room for all", did="four started at once", replicas={"min": 1, "max": 4}
)
# Beside others, with the rest of its batch, and then by itself
DEATHS = LOST_BESIDE + 1 + MOST_DEATHS
POISON = Case(
    tried="four engines; one prompt kills each engine that it reaches",
    did=f"{DEATHS} died of it, it failed with that, all others were answered",
    deaths=Deaths(prompt_bytes=LONG_BYTES),
    engines=range(4, 5 + DEATHS),
    repeats=DEATHS + NOTICED,
    failed=1,
    told=f"while it was asked this one and nothing else ({DEATHS} times in all)",
)
CASES: Mapping[str, Case] = {
    "none": Case(tried="nothing", did="four engines answered"),
    "actor": DIES,
    "child": replace(
        DIES,
        tried="an engine's own process, kill -9",
        did="its actor ended, the others took its prompts, it came up again",
        meddle=partial(kill, what="child"),
    ),
    "all": replace(
        DIES,
        tried="all four actors, kill -9",
        did="all came up again",
        meddle=partial(kill, n=4),
        engines=(8,),
        repeats=4 * LOST,
    ),
    "node": LOST_NODE,
    "node-with-clients": replace(
        LOST_NODE,
        tried="the same where clients have no other nodes",
        did="clients came up elsewhere and asked the other two",
        head_cpus=0,
        engines=(4, 5, 6),
    ),
    "node-at-the-end": replace(
        LOST_NODE,
        tried="the same when all prompts are under way",
        did="engines whose own prompts were done stayed for the others'",
        repeats=2 * LOST,
        units=4 * LOST,
        row_s=15.0,
        kill_at=4 * LOST,
    ),
    "node-replaced": replace(
        LOST_NODE,
        tried="a node with two engines, and another comes",
        did="its engines came up there",
        meddle=partial(LOSES_NODE, adds={"num_cpus": 2, "num_gpus": 2}),
        engines=(5, 6),
    ),
    "always": NEVER_UP,
    "always-error": replace(
        NEVER_UP,
        tried="one of four fails on every start (an error)",
        deaths=Deaths(times=99, how="error"),
        told="RuntimeError: Engine core initialization failed",
    ),
    "always-elastic": replace(
        ELASTIC,
        tried="the same, of 1 to 4 engines",
        did="the run went on with three, and said so",
        deaths=Deaths(times=99, how="error"),
        engines=(3,),
        told="The run goes on with",
    ),
    "once": UP_AT_SECOND,
    "once-error": replace(
        UP_AT_SECOND,
        tried="one fails at its first start (an error)",
        deaths=Deaths(times=1, how="error"),
    ),
    "poison": POISON,
    "poison-alone": replace(
        POISON,
        tried="the same with one engine, on a machine's own Ray",
        replicas=1,
        nodes=(),
        engines=(DEATHS, DEATHS + 1),
        options={"device": "cpu"},
    ),
    "grows": replace(
        ELASTIC,
        tried="1 to 4 engines, room for one; a node with 3 GPUs comes",
        did="three more came up there",
        meddle=partial(change_nodes, up=1, adds={"num_cpus": 2, "num_gpus": 3}),
        nodes=(1,),
    ),
    "room-for-all": ELASTIC,
    "room-for-one": replace(
        ELASTIC,
        tried="1 to 4 engines, room for one, and none comes",
        did="the one answered all",
        nodes=(1,),
        engines=(1,),
    ),
    "shrinks": replace(
        LOST_NODE,
        tried="1 to 4 engines; a node of two is taken away",
        meddle=partial(LOSES_NODE, is_graceful=True),
        replicas=ELASTIC.replicas,
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
        meddle=partial(change_nodes, up=0, adds={"num_cpus": 4}),
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
REAL = Case(
    tried="two vLLM engines; the actor of one, kill -9",
    did="the other took its prompts",
    meddle=partial(kill, of=2),
    replicas=2,
    nodes=(0,),
    engines=(2, 3),
    repeats=LOST,
    options={"cpus": 1.0, "device": "cpu"},
    units=400,
    is_real=True,
    kill_at=12,
)
OWN_PROCESS = {"engine_kwargs": {"distributed_executor_backend": "mp"}}
REAL_CASES: Mapping[str, Case] = {
    "vllm-actor": REAL,
    "vllm-core": replace(
        REAL,
        tried="two vLLM engines; the EngineCore process of one, kill -9",
        meddle=partial(kill, of=2, what="child"),
        options={**REAL.options, **OWN_PROCESS},
    ),
}


@dataclass(frozen=True)
class Played:
    """What came of a case: the exit code, rows and units in the records (-1: no run folder), failed
    units and the error of one, prompts asked again, engines that came up, loads at once on a node,
    seconds, groups left, judge actors at most, and what the command line said."""

    code: int
    rows: int
    units: int
    failed: int
    error: str
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
        command = [sys.executable, "-m", "tests.bench.engine_kills", "--play", name, folder]
        began = time.monotonic()
        done = subprocess.run(
            command,
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=2 * HANG_S,
            check=False,
        )
        return _count(Path(folder), done.returncode, time.monotonic() - began, done.stdout)


def _count(folder: Path, code: int, seconds: float, said: str) -> Played:
    from memray_eval.results.run_folder import RunFolder

    rows, units, errors = -1, -1, list[str]()
    for path in folder.glob("out/*/run.yaml"):
        run = RunFolder(str(path.parent))
        records = list(run.each()) if run.parts() else []
        rows, units = len(records), len({record.unit_id for record in records})
        errors = [str(record.response) for record in records if record.is_failed]
    asked, starts = read_asked(folder), read_starts(folder)
    left = folder / "groups"
    return Played(
        code=code,
        rows=rows,
        units=units,
        failed=len(errors),
        error=errors[0] if errors else "",
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
    expected = (case.units, case.units, case.failed)
    if case.units >= 0 and (played.rows, played.units, played.failed) != expected:
        found.append(f"{played.rows} rows, {played.units} units, {played.failed} failed")
    if played.repeats > case.repeats:
        found.append(f"{played.repeats} prompts again")
    if played.engines not in case.engines:
        found.append(f"{played.engines} engines came up")
    if played.at_once > case.options.get("starts_at_once", 2):
        found.append(f"{played.at_once} loaded at once on a node")
    if case.judges and played.judges != case.judges:
        found.append(f"{played.judges} judge actors")
    if case.told not in (played.error if case.failed else played.said):
        found.append(f"it did not say {case.told!r}")
    if "Traceback" in played.said:
        found.append("a traceback")
    if played.groups_left:
        found.append(f"{played.groups_left} placement groups left")
    return found


def main(names: Sequence[str]) -> int:
    """Plays cases and prints a line each; how many ended otherwise than expected."""
    n_wrong = 0
    print("| tried | what happened | rows of units | failed | asked again | engines up | s |")
    print("|---|---|---|---|---|---|---|", flush=True)
    cases = {**CASES, **REAL_CASES}
    for name in names or CASES:
        case, played = cases[name], play(name)
        wrong = problems(case, played)
        n_wrong += bool(wrong)
        happened = f"**{'; '.join(wrong)}**" if wrong else case.did
        rows = f"{played.rows} of {played.units}" if played.rows >= 0 else "no run"
        print(
            f"| {case.tried} | {happened} | {rows} | {played.failed} | {played.repeats} | "
            f"{played.engines} | {played.seconds:.0f} |",
            flush=True,
        )
        if wrong:
            print(f"\n{name}: {asdict(played)}\n{played.said}", file=sys.stderr)
    return n_wrong


def job(case: Case, folder: Path, cluster: Mapping[str, Any]) -> dict[str, Any]:
    options = dict(case.options)
    ours = {key: options.pop(key) for key in list(options) if key in EngineConfig.model_fields}
    units, long = UNITS if case.units < 0 else case.units, " word" * LONG_BYTES
    poison = range(units // 2, units // 2 + case.failed)
    rows = [
        {"id": f"s{n}", "query": f"What is fact {n}?", "answers": ["x"]}
        | {"context": f"Text {n}.{long if n in poison else ''}", "metadata": {"rule": "qa_f1"}}
        for n in range(units)
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
        "cluster": {"no_progress_timeout_s": HANG_S, **cluster},
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
            "actors": 3,
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
    from tests.clusters.fake_engine import counted_engine, fake_engine

    case = {**CASES, **REAL_CASES}[name]
    os.environ.update({name: value for name, value in _QUIET.items() if name not in os.environ})
    cluster, where = Cluster(), {"num_cpus": 2}
    if case.nodes:
        cluster.add_node(num_cpus=case.head_cpus, include_dashboard=False)
        where = {"address": cluster.address}
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
    vars(engine)["VllmEngine"] = (
        counted_engine(engine.VllmEngine, folder)
        if case.is_real
        else fake_engine(folder, case.row_s, load_s=0.5, deaths=case.deaths)
    )
    path = folder / "job.yaml"
    written = job(case, folder, where)
    if case.judges:
        written["judging"] = stack.enter_context(judging(folder))
        threading.Thread(target=watch_judges, args=(folder,), daemon=True).start()
    path.write_text(json.dumps(written))

    def meddle() -> None:
        if case.meddle is None:
            return
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
