"""Ray nodes by `ray start`, as on machines of their own: each at its own loopback address, with its
own ports and processes."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.conftest import HANG_S

RAY = Path(sys.executable).parent / "ray"
HEAD_ADDRESS, SECOND_ADDRESS = "127.0.0.2", "127.0.0.3"
_OURS = ("RAY_", "PYTEST_")  # what the test's own process has of these is no business of a node


@dataclass(frozen=True)
class Node:
    """A running node: its address, the folder of its session's files, and the `ray start --block`
    that keeps it."""

    ip: str
    gcs_address: str
    dashboard: str
    folder: Path
    process: subprocess.Popen[bytes]

    def processes(self) -> list[psutil.Process]:
        """The node's own: raylet, agents, workers, and on the head the cluster's."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def kill(self) -> None:
        """kill -9 of everything at once: a machine that lost its power."""
        processes = self.processes()
        self.process.kill()
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()


@contextlib.contextmanager
def head_node(
    cpus: int,
    environ: Mapping[str, str] | None = None,
    ip: str = HEAD_ADDRESS,
    port: int = 0,
    more: Sequence[str] = (),
) -> Iterator[Node]:
    """A cluster's head, with a dashboard, until the block ends. `environ` is laid over this
    process's environment: what the node has, its jobs have. `port` is GCS's, 0 for any; `more` are
    further flags of `ray start`."""
    with _short_folder() as folder:
        port, dashboard_port = port or free_port(ip), free_port(ip)
        gcs, dashboard = f"{ip}:{port}", f"http://{ip}:{dashboard_port}"
        flags = ["--head", f"--port={port}", f"--temp-dir={folder}", "--include-dashboard=true"]
        flags += [f"--dashboard-host={ip}", f"--dashboard-port={dashboard_port}"]
        flags += [f"--ray-client-server-port={free_port(ip)}", *more]
        with _started(ip, cpus, flags, folder, environ or {}) as process:
            node = Node(ip, gcs, dashboard, folder, process)
            _wait_for_port(node, ip, dashboard_port)
            yield node


@contextlib.contextmanager
def second_node(head: Node, cpus: int, environ: Mapping[str, str] | None = None) -> Iterator[Node]:
    """Another node of the head's cluster, until it is killed or the block ends. It has files of its
    own, as a machine has: in one folder, nodes would write over each other's copy of a job's
    package."""
    with _short_folder() as folder:
        flags = [f"--address={head.gcs_address}", f"--temp-dir={folder}"]
        with _started(SECOND_ADDRESS, cpus, flags, folder, environ or {}) as process:
            yield Node(SECOND_ADDRESS, head.gcs_address, head.dashboard, folder, process)


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without what is Ray's in it, and with `more`. Unless that says
    otherwise there are no tokens: `ray start` wants them as soon as an earlier Ray has left one in
    the user's home."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    fixed = {
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PATH": f"{RAY.parent}:{os.environ['PATH']}",
    }
    return plain | fixed | dict(more)


def free_port(ip: str = "127.0.0.1") -> int:
    with socket.socket() as probe:
        probe.bind((ip, 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _short_folder() -> Iterator[Path]:
    """Ray's sockets are files in it, and the path of a socket has at most 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="rn", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _started(
    ip: str, cpus: int, flags: list[str], folder: Path, environ: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    command = [str(RAY), *"start --block --disable-usage-stats".split()]
    command += [f"--node-ip-address={ip}", f"--num-cpus={cpus}"]
    command += ["--min-worker-port=0", "--max-worker-port=0"]
    command += [f"--object-store-memory={150 << 20}", *flags]
    command += [
        f"--{name}-port={free_port(ip)}"
        for name in ("metrics-export", "dashboard-agent-listen", "runtime-env-agent")
    ]
    log = folder / f"start-{ip}.log"
    with log.open("wb") as out:
        env = environment(environ)
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env=env, cwd="/", start_new_session=True
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a node with all that it started, also what Ray put in sessions of its own."""
    with contextlib.suppress(psutil.NoSuchProcess):
        processes = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        _, alive = psutil.wait_procs(processes, timeout=10)
        for left in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()
    process.kill()
    process.wait()


def _wait_for_port(node: Node, ip: str, port: int) -> None:
    deadline = time.monotonic() + HANG_S
    while True:
        with contextlib.suppress(OSError), socket.create_connection((ip, port), timeout=1):
            return
        text = (node.folder / f"start-{node.ip}.log").read_text("utf-8", "replace")
        assert node.process.poll() is None, f"ray start ended: {text[-2000:]}"
        assert time.monotonic() < deadline, f"no dashboard after {HANG_S:g} s: {text[-2000:]}"
        time.sleep(0.2)
