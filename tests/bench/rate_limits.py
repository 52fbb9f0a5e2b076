"""How much of a provider's limit four judge actors use, and how many 429s they draw: requests/min,
then tokens/min.

    python -m tests.bench.rate_limits [--seconds 90] [--per-min 3000] [--executor local]
        [--clusters 2]

The provider enforces its limit by a sliding window of a minute and announces it in its headers; the
run knows nothing of it beforehand. Use is what was let in over what the limit allows, from 10 s
after the first request (the limit is known, and all four actors are up) to 5 s before the last (the
first of them has no more to do); over the whole span it is printed too. Several clusters are a run
each, in processes of their own, that ask on one key at the same time, each by what its answers
say."""

import argparse
import multiprocessing
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from memray_eval.config.schema import RunConfig
from memray_eval.execution.runs import run
from tests.bench.judge_throughput import METRICS
from tests.build import judging_job, write_responses
from tests.servers.process import serving_process

REQUESTS_PER_MIN, TOKENS_PER_MIN = 6000, 6_000_000
LATENCY_S, KNOWN_AFTER_S, TAIL_S = 0.2, 10.0, 5.0


def judged(units: int, executor: str = "ray", clusters: int = 1, **limits: Any) -> dict[str, Any]:
    """The provider's counts after a run of four judge actors in each cluster, or in one process
    (`local`); the units are shared out."""
    with (
        serving_process(latency_s=LATENCY_S, **limits) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        folders = [Path(folder, str(cluster)) for cluster in range(clusters)]
        for own in folders:
            own.mkdir()
        configs = [
            judging_job(
                write_responses(own, units // clusters),
                own,
                server.base_url,
                METRICS,
                executor,
                actors=4,
                latency_s=LATENCY_S,
            )
            for own in folders
        ]
        if clusters == 1:
            failed = [n_failed(configs[0])]
        else:
            processes = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(clusters, mp_context=processes) as pool:
                failed = list(pool.map(n_failed, configs))
        assert not any(failed), failed
        return server.stats(full=True)


def n_failed(config: RunConfig) -> int:
    return run(config, lambda line: None, quiet=True).summary.n_failed_units


def told(what: str, a_call: float, limit: float, stats: dict[str, Any]) -> None:
    """Prints the use of a limit of which every call takes `a_call` on average."""
    times = stats["times"]
    start, stop = times[0] + KNOWN_AFTER_S, times[-1] - TAIL_S
    steady = (
        sum(start <= moment < stop for moment in times) * a_call / (limit * (stop - start) / 60.0)
    )
    whole = len(times) * a_call / (limit * (times[-1] - times[0]) / 60.0)
    print(
        f"{what}: {steady:.3f} of {limit:g}/min ({whole:.3f} from start to end), {stats['n_429']} "
        "times 429",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--per-min", type=float, default=REQUESTS_PER_MIN)
    parser.add_argument("--executor", default="ray", choices=["ray", "local"])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--clusters", type=int, default=1)
    options = parser.parse_args()
    runs = (options.executor, options.clusters)
    units = round(options.per_min / 60.0 * options.seconds / len(METRICS))
    for _ in range(options.rounds):
        stats = judged(units, *runs, requests_per_min=options.per_min)
        told("requests", 1.0, options.per_min, stats)
    if options.per_min != REQUESTS_PER_MIN:
        return
    stats = judged(units, *runs, tokens_per_min=TOKENS_PER_MIN, count_tokens=True)
    told(
        "tokens",
        (stats["input_tokens"] + stats["output_tokens"]) / stats["n_answered"],
        TOKENS_PER_MIN,
        stats,
    )


if __name__ == "__main__":
    main()
