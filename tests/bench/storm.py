"""What a storm costs: 2,000 judge calls with 10 % 429, 10 % 500, 5 % time-outs, 5 % resets and 5 %
malformed verdicts, against the same calls in calm.

    python -m tests.bench.storm [--units 200]

Prints the ratio of the times from the first request to the last, and checks the books: every unit
scored or an explicit error, none twice, no silent zero. A verdict takes 0.5 s; the faults but for
the time-outs come at once, as from a provider that sheds load, and a 429 asks to wait for a second.
64 calls are in flight."""

import argparse
import tempfile
from collections import Counter
from pathlib import Path

from memray_eval.execution.runs import run
from memray_eval.results.schema import from_table
from tests.bench.judge_throughput import METRICS
from tests.build import judging_job, write_responses
from tests.servers.process import serving_process

LATENCY_S, TIMEOUT_S, IN_FLIGHT = 0.5, 2.0, 32  # in flight in each of two actors
STORM = (7, 0.10, 0.10, 0.05, 0.05, 0.05)  # seed, 429, 500, hang, reset, malformed


def judged(units: int, storm: tuple[float, ...]) -> float:
    """Seconds from the first request to the last."""
    with (
        serving_process(latency_s=LATENCY_S, storm=storm, hang_s=10.0, retry_after_s=1.0) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        dataset = write_responses(Path(folder), units)
        config = judging_job(
            dataset,
            Path(folder),
            server.base_url,
            METRICS,
            timeout_s=TIMEOUT_S,
            max_in_flight=IN_FLIGHT,
            actors=2,
        )
        finished = run(config, lambda line: None, quiet=True)
        stats, records = server.stats(), list(from_table(finished.folder.records().to_table()))
    outcomes = Counter(score.status for record in records for score in record.scores)
    assert len(records) == len({record.unit_id for record in records}) == units
    assert all(len(record.scores) == len(METRICS) for record in records)
    assert all(
        score.value is not None and score.judgment
        for r in records
        for score in r.scores
        if score.status == "scored"
    )
    assert all(
        score.value is None and score.error
        for r in records
        for score in r.scores
        if score.status == "error"
    )
    seconds = float(stats["last_arrival_s"] + LATENCY_S - stats["first_arrival_s"])
    print(
        f"{'storm' if storm else 'calm'}: {seconds:.1f} s, {stats['n_requests']} requests, "
        f"{dict(outcomes)}",
        flush=True,
    )
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--units", type=int, default=200)
    options = parser.parse_args()
    calm_s, storm_s = judged(options.units, ()), judged(options.units, STORM)
    print(f"the storm takes {storm_s / calm_s:.2f} times as long")


if __name__ == "__main__":
    main()
