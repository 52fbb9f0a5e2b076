"""What a report of one judge actor costs the run's counter, by how many actors report.

    python -m tests.bench.counter [--members 8 250 1000 3000]

Microseconds of CPU of a report in this process, and of Ray's actor of the counter, with
Prometheus; each actor reports on two judges. An actor reports about once a second, so the last
column is how many the counter can hear."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import ray

from memray_eval.execution.ray.progress_counter import ProgressCounter
from memray_eval.execution.run_counter import RunCounter
from memray_eval.judges.call_metrics import CallMetricsSnapshot, Calls

REPORTS = 3000
TOLD = CallMetricsSnapshot(
    calls=Calls(sent=4, outcomes={"ok": 4}, took={1: 4}), in_flight=4, waiting=2
)
JUDGES = {"a": TOLD, "b": TOLD}


def micros(
    members: int, report: Callable[[str], object], cpu_s: Callable[[], float] = time.process_time
) -> float:
    """Microseconds of CPU of a report when so many members have reported."""
    for number in range(members):
        report(f"m{number}")
    began = cpu_s()
    for number in range(REPORTS):
        report(f"m{number % members}")
    return (cpu_s() - began) / REPORTS * 1e6


def measure(members: int) -> None:
    here, actor = RunCounter(), ProgressCounter.remote()  # type: ignore[attr-defined]
    alone = micros(members, lambda name: here.record_calls(name, JUDGES))
    on_ray = micros(
        members,
        lambda name: actor.call.remote("record_calls", name, JUDGES),
        lambda: float(ray.get(actor.__ray_call__.remote(lambda _: time.process_time()))),
    )
    print(
        f"{members:>5} members: {alone:7.1f} us a report, {on_ray:7.1f} us of Ray's actor: "
        f"up to {1e6 / on_ray:,.0f} actors",
        flush=True,
    )
    ray.kill(actor)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--members", type=int, nargs="+", default=[8, 250, 1000, 3000])
    options = parser.parse_args()
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    for members in options.members:
        measure(members)


if __name__ == "__main__":
    main()
