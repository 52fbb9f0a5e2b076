"""What a report of one judge actor costs the run's counter, by how many actors report.

    python -m tests.bench.counter [--members 8 250 1000 3000]

Microseconds of a report in this process, and of one that Ray's actor of the counter takes, with
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


def micros(members: int, report: Callable[[str], object], end: Callable[[], object]) -> float:
    """Microseconds of a report when so many members have reported."""
    for number in range(members):
        report(f"m{number}")
    end()
    began = time.perf_counter()
    for number in range(REPORTS):
        report(f"m{number % members}")
    end()
    return (time.perf_counter() - began) / REPORTS * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--members", type=int, nargs="+", default=[8, 250, 1000, 3000])
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    for members in parser.parse_args().members:
        here = RunCounter()
        alone = micros(members, lambda name: here.record_calls(name, JUDGES), lambda: None)  # noqa: B023
        actor = ProgressCounter.remote()  # type: ignore[attr-defined]
        on_ray = micros(
            members,
            lambda name: actor.call.remote("record_calls", name, JUDGES),  # noqa: B023
            lambda: ray.get(actor.call.remote("stopping")),  # noqa: B023
        )
        print(
            f"{members:>5} members: {alone:7.1f} us a report, {on_ray:7.1f} us by Ray: "
            f"up to {1e6 / on_ray:,.0f} actors",
            flush=True,
        )
        ray.kill(actor)


if __name__ == "__main__":
    main()
