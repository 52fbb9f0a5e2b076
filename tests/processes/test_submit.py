"""Jobs through the job API of a real cluster with token authentication: sent, followed, stopped,
gone on with by the run's id; their exit codes; and no key in anything that the cluster shows or
writes. One cluster and two runs for the whole file."""

import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import from_table
from tests.build import served
from tests.conftest import HANG_S, REPOSITORY, SAMPLES
from tests.processes.killing import wait_for
from tests.processes.two_nodes import HEAD_ADDRESS, Node, environment, free_port, head_node
from tests.servers.process import ServerProcess, serving_process

KEY, TOKEN = "node-key-5f2c9b71e04d4a8c", "token-" + "7d1e" * 10
AUTH = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
LIMIT, CALLS = 12, 12 * 3  # samples; each is answered once and judged twice
STATE_API = "actors tasks nodes workers jobs runtime_envs placement_groups objects".split()


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class Story(NamedTuple):
    """What happened on the cluster, told once for all tests: commands by name, and what could be
    read in the end."""

    commands: dict[str, Ended]
    shown: dict[str, str]
    folder: RunFolder
    calls: dict[str, Any]


class Shell:
    """Starts commands in processes of their own, as a user does, and kills at its end what still
    runs."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def python(self, *words: str, auth: dict[str, str] = AUTH) -> subprocess.Popen[str]:
        pipe, env = subprocess.PIPE, environment(auth)
        command = [sys.executable, *words]
        process = self._stack.enter_context(
            subprocess.Popen(command, cwd=REPOSITORY, env=env, text=True, stdout=pipe, stderr=pipe)
        )
        self._stack.callback(process.kill)
        return process

    def memray(self, *words: str, auth: dict[str, str] = AUTH) -> subprocess.Popen[str]:
        return self.python("-m", "memray_eval", *words, auth=auth)

    def ray(self, *words: str) -> subprocess.Popen[str]:
        return self.python("-m", "ray.scripts.scripts", *words)


def ended(process: subprocess.Popen[str]) -> Ended:
    out, err = process.communicate(timeout=HANG_S)
    return Ended(process.returncode, out, err)


def config_file(folder: Path, server: ServerProcess) -> Path:
    judging = {
        "base_urls": {"openai": server.base_url},
        "api_key_envs": {"openai": "NODE_KEY"},
        "max_in_flight": 2,
    }
    job = {
        "dataset": str(SAMPLES),
        "limit": LIMIT,
        "candidates": [served(server, api_key_env="NODE_KEY")],
        "metrics": ["helpfulness", "empathy"],
        "judge": "openai/local",
        "judging": judging,
        "server": {"max_in_flight": 2},
        "rows_per_block": 2,
        "out": str(folder / "out"),
    }
    path = folder / "job.yaml"
    path.write_text(json.dumps(job))
    return path


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("submit")
    node = AUTH | {"NODE_KEY": KEY, "MEMRAY_EVAL_CACHE": str(folder / "cache")}
    with serving_process(latency_s=0.1) as server, head_node(2, node) as head, ExitStack() as stack:
        yield tell(folder, server, head, Shell(stack))


def tell(folder: Path, server: ServerProcess, head: Node, shell: Shell) -> Story:
    config, at = str(config_file(folder, server)), ("--address", head.dashboard)
    again = ("submit", config, *at, "--run-id", "night-1", "--follow")
    first = shell.memray(*again)
    wait_for(server, CALLS // 3, first, lambda: str(ended(first)))
    server.set_latency(60.0)  # it cannot end before it is stopped
    looking = shell.memray("job", "logs", "night-1", *at, "--follow")
    assert looking.stdout is not None
    looking.stdout.readline()
    looking.send_signal(signal.SIGINT)
    done = {"looking": ended(looking), "stop": ended(shell.memray("job", "stop", "night-1", *at))}
    assert done["stop"].code == 0, done["stop"].err  # else the first would not end
    done["first"] = ended(first)
    server.set_latency(0.0)
    second = shell.memray(*again)
    raw = [
        "--working-dir",
        str(checkout(folder)),
        *"-- python jobs/evaluate.py absent.yaml".split(),
    ]
    commands = {
        "wrong token": shell.memray("job", "list", *at, auth=AUTH | {"RAY_AUTH_TOKEN": "guessed"}),
        "no token": shell.memray("job", "list", *at, auth={}),
        "entrypoint": shell.ray("job", "submit", *at, *raw),
        "rayjob": shell.ray("job", "submit", *at, *raw, "--rayjob"),
    }
    done |= {name: ended(process) for name, process in commands.items()}
    done["second"] = ended(second)
    commands = {
        "status": shell.memray("job", "status", "night-1", *at, "--json"),
        "list": shell.ray("job", "list", *at),
    }
    done |= {name: ended(process) for name, process in commands.items()}
    return Story(
        done, shown(head, folder, done), RunFolder(str(folder / "out" / "night-1")), server.stats()
    )


def checkout(folder: Path) -> Path:
    """What a user has who sends a checkout by `ray job submit`."""
    target = folder / "checkout"
    for part in ("memray_eval", "jobs"):
        shutil.copytree(
            REPOSITORY / part, target / part, ignore=shutil.ignore_patterns("__pycache__")
        )
    return target


def shown(head: Node, folder: Path, done: dict[str, Ended]) -> dict[str, str]:
    """All that the cluster shows and writes: its APIs, the files of its session, the run's, and
    what the commands printed."""
    pages = ["/api/jobs/", "/api/cluster_status", "/nodes?view=summary", "/api/serve/applications/"]
    pages += [f"/api/v0/{kind}?detail=1" for kind in STATE_API]
    texts = {page: fetched(f"{head.dashboard}{page}") for page in pages}
    for root in (head.folder, folder / "out"):
        for path in root.rglob("*"):
            with suppress(OSError):  # a socket, or gone by now
                texts[str(path)] = path.read_bytes().decode("utf-8", "replace")
    return texts | {f"what {name} printed": end.out + end.err for name, end in done.items()}


def fetched(url: str) -> str:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
    try:
        with urllib.request.urlopen(request, timeout=HANG_S) as answer:
            return str(answer.read().decode("utf-8", "replace"))
    except urllib.error.HTTPError as error:
        return error.read().decode("utf-8", "replace")


@pytest.mark.night
def test_a_stopped_job_is_gone_on_with_by_its_runs_id(story: Story) -> None:
    """The log comes as it is written, both times; the second job does what the first left, and
    every unit is there once."""
    first, second = story.commands["first"], story.commands["second"]
    assert "Run night-1: 12 samples, 12 answers" in first.out
    assert (story.commands["stop"].code, first.code, second.code) == (0, 1, 0), (first, second)
    assert "STOPPED" in first.err
    assert "Resuming night-1: " in second.out
    assert "SUCCEEDED" in second.err
    records = list(from_table(story.folder.records().to_table()))
    assert len({record.unit_id for record in records}) == len(records) == LIMIT
    assert all(
        [score.status for score in record.scores] == ["scored", "scored"] for record in records
    )
    sessions = story.folder.read_manifest()["sessions"]
    assert [session["status"] for session in sessions] == ["interrupted", "finished"]
    assert story.calls["n_answered"] - story.calls["paid_again"] == CALLS


@pytest.mark.night
def test_whoever_stops_looking_does_not_stop_the_job(story: Story) -> None:
    """Ctrl-C ends the following, says how to go on, and the job could still be stopped after it."""
    code, _, err = story.commands["looking"]
    assert code == 130
    assert (
        "Detached; the job goes on. Watch it with `memray-eval job logs --follow raysubmit_" in err
    )
    assert "Traceback" not in err
    assert "is being stopped" in story.commands["stop"].err


@pytest.mark.night
def test_the_package_is_small_and_the_list_says_what_runs(story: Story) -> None:
    match = re.search(r": (\d+) files, ([\d.]+) MB\.", story.commands["first"].err)
    assert match is not None
    assert int(match[1]) > 100
    assert 0.1 < float(match[2]) < 5
    state = json.loads(story.commands["status"].out)
    assert (state["run_id"], state["suite"], state["samples"]) == ("night-1", "memory", "12")
    assert (state["status"], state["driver_exit_code"]) == ("SUCCEEDED", 0)


@pytest.mark.night
def test_a_failed_job_has_its_drivers_exit_code(story: Story) -> None:
    """jobs/evaluate.py, as `ray job submit` starts it, ends with 2 for a config that is not
    there, and with --rayjob as a job that KubeRay does not retry."""
    commands = [story.commands[name] for name in ("entrypoint", "rayjob")]
    assert [command.code != 0 for command in commands] == [True, False], commands
    assert all("error: no file absent.yaml" in command.out for command in commands)
    ends = {
        job["entrypoint"].split("absent.yaml")[1]: (job["status"], job["driver_exit_code"])
        for job in json.loads(story.shown["/api/jobs/"])
        if "absent.yaml" in job["entrypoint"]
    }
    assert ends[""] == ("FAILED", 2)
    assert ends[" --rayjob"][0] == "STOPPED"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("wrong token", "did not let us in: no token, or a wrong one"),
        ("no token", "RAY_AUTH_MODE=token"),
    ],
)
@pytest.mark.night
def test_a_cluster_that_cannot_be_asked_is_a_message_and_exit_code_3(
    story: Story, command: str, message: str
) -> None:
    code, out, err = story.commands[command]
    assert (code, out) == (3, "")
    assert message in err
    assert "Traceback" not in err


def test_no_cluster_is_a_message_and_exit_code_3() -> None:
    with ExitStack() as stack:
        address = f"http://{HEAD_ADDRESS}:{free_port(HEAD_ADDRESS)}"
        code, out, err = ended(Shell(stack).memray("job", "list", "--address", address))
    assert (code, out) == (3, "")
    assert "no cluster answers at http://127.0.0.2:" in err


@pytest.mark.night
def test_no_key_is_shown_or_written(story: Story) -> None:
    """The key that the nodes have was used, and is nowhere; nor is the token."""
    assert story.commands["list"].code == 0
    assert "night-1" in story.shown["/api/jobs/"]
    pages = {kind: story.shown[f"/api/v0/{kind}?detail=1"] for kind in STATE_API}
    assert [kind for kind, page in pages.items() if '"result": true' not in page] == []
    assert any("/logs/job-driver-" in name for name in story.shown)
    assert any(name.endswith("manifest.json") for name in story.shown)
    assert [name for name, text in story.shown.items() if KEY in text] == []
    assert [name for name, text in story.shown.items() if TOKEN in text] == []
