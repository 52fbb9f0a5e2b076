"""Milliseconds of CPU a unit of a run over memories of 4,000 entries, against a run over needles of
as many tokens and characters (`vt`: text with a line of values here and there): from the file to
the summary, answered by a function at once, scored by code. Both in turn, the best of three; then
what a memory costs at least, if nothing is done twice. With `--engines N` also units/s of both by
the clock, in turn, where a server answers N prompts at a time, each in the seconds that an H200
takes for so many tokens (an 8B model; tests.bench.engine_table, cluster/README.md).

    python -m tests.bench.large_memories [--entries 4000] [--samples 74] [--engines 64]

Seconds are the process's CPU time, less those of a run of the rows by which columns are found."""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from orjson import loads

from memray_eval.benchmarks.memory.generator import samples
from memray_eval.benchmarks.memory.suite import SUITE
from memray_eval.benchmarks.needles import generate
from memray_eval.benchmarks.needles.plan import plan_of
from memray_eval.benchmarks.needles.resources import Resources
from memray_eval.benchmarks.needles.tasks import TASKS
from memray_eval.config.loading import load_config
from memray_eval.datasets.columns import LOOKED_AT
from memray_eval.models.tokenizers import load_tokenizer
from memray_eval.results.schema import samples_to_table
from memray_eval.types import Candidate, Sample
from memray_eval.types.json_text import field_to_json
from tests.build import finish, write_lines
from tests.servers.process import serving_process

ASKED = Candidate(name="c", model="m")
STORED = ["memory", "required_keys", "forbidden_keys", "neutral_keys"]
ANSWER = "def answer(messages):\n    return 'Please ask your doctor first. The number is 12345.'\n"
JOB = """
suite: {suite}
dataset: rows.jsonl
candidates: [{{name: mine, model: "mine.py:answer"}}]
metrics: [{metric}]
judge: rules
executor: local
out: results
"""
SERVED = """
suite: {suite}
dataset: rows.jsonl
candidates: [{{name: served, model: m, backend: openai, base_url: "{url}"}}]
metrics: [{metric}]
judge: rules
executor: local
server: {{max_in_flight: {engines}}}
out: results
"""


def seconds(rows: Sequence[Sample], suite: str, metric: str) -> float:
    """CPU seconds of a run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_lines(folder / "rows.jsonl", (json.loads(row.model_dump_json()) for row in rows))
        (folder / "mine.py").write_text(ANSWER)
        (folder / "job.yaml").write_text(JOB.format(suite=suite, metric=metric))
        started = time.process_time()
        summary = finish(load_config(folder / "job.yaml")).summary
        assert (summary.n_units, summary.n_failed_units) == (len(rows), 0)
        return time.process_time() - started


def a_unit(rows: Sequence[Sample], suite: str, metric: str) -> float:
    """Seconds a unit."""
    few = min(seconds(rows[:LOOKED_AT], suite, metric) for _ in range(2))
    return (seconds(rows, suite, metric) - few) / (len(rows) - LOOKED_AT)


def prefill_s(tokens: int) -> float:
    """Seconds of an H200 for one prompt: 1.16 for 32k tokens, 9.95 for 128k, by a parabola."""
    thousands = tokens / 1000
    return 0.0224 * thousands + 0.000432 * thousands**2


def served_per_s(rows: Sequence[Sample], suite: str, metric: str, engines: int, s: float) -> float:
    """Units a second of a run, from the first request to the last answer."""
    with tempfile.TemporaryDirectory() as name, serving_process(latency_s=s) as server:
        folder = Path(name)
        write_lines(folder / "rows.jsonl", (json.loads(row.model_dump_json()) for row in rows))
        values = {"suite": suite, "metric": metric, "url": server.base_url, "engines": engines}
        (folder / "job.yaml").write_text(SERVED.format(**values))
        summary = finish(load_config(folder / "job.yaml")).summary
        assert (summary.n_units, summary.n_failed_units) == (len(rows), 0)
        stats = server.stats()
        return len(rows) / (stats["last_arrival_s"] - stats["first_arrival_s"] + s)


def least(work: Callable[[Sample], object], rows: Sequence[Sample]) -> float:
    """CPU seconds of a part of a unit."""
    times = []
    for _ in range(3):
        started = time.process_time()
        for row in rows:
            work(row)
        times.append((time.process_time() - started) / len(rows))
    return min(times)


def floor(memories: Sequence[Sample]) -> dict[str, float]:
    """CPU seconds of what any run does with a large memory and not with a context."""
    lines = {row.id: row.model_dump_json() for row in memories}
    texts = {row.id: field_to_json(row, "memory") for row in memories}
    table = samples_to_table(memories).select(STORED)

    def store_all(_: Sample) -> None:
        pq.write_table(table, pa.BufferOutputStream(), compression="zstd")

    return {
        "row read, in the scan and in the run": 2
        * least(lambda row: loads(lines[row.id]), memories),
        "order and text of the prompt": least(
            lambda row: SUITE.prompt(row.model_copy(update={"memory": {**row.memory}}), ASKED),
            memories,
        ),
        "memory written as JSON": least(lambda row: field_to_json(row, "memory"), memories),
        "memory read where judged": least(lambda row: loads(texts[row.id]), memories),
        "Parquet twice": 2 * least(store_all, memories[:1]) / len(memories),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=4000)
    parser.add_argument("--samples", type=int, default=74)
    parser.add_argument("--engines", type=int)
    arguments = parser.parse_args()
    drawn = list(samples(["large"], [arguments.entries]))
    memories = [
        row.model_copy(update={"id": f"{row.id}-{number}"})  # 74 are drawn: again with other ids
        for number, row in enumerate(islice(cycle(drawn), arguments.samples))
    ]
    tokenizer = load_tokenizer("embedded")
    profile = SUITE.prompt(memories[0], ASKED).messages[0].content
    n_tokens = len(tokenizer.encode(profile))
    plan = plan_of(TASKS, "vt", str(n_tokens), 1, arguments.samples, 0)
    needles = list(generate.samples(plan, Resources(tokenizer, 0), lambda *_: None))
    of_needle = len(needles[0].context or "")
    if arguments.engines:
        each = arguments.engines, prefill_s(n_tokens)
        print(f"{each[0]} engines of {each[1]:.1f} s a prompt of {n_tokens:,} tokens")
        for _ in range(3):
            memory = served_per_s(memories, "memory", "memory_conduct", *each)
            needle = served_per_s(needles, "needles", "rule_score", *each)
            print(f"  memories {memory:.2f}, needles {needle:.2f} units/s: {memory / needle:.2f}")
        return
    rounds = [
        (a_unit(memories, "memory", "memory_conduct"), a_unit(needles, "needles", "rule_score"))
        for _ in range(3)
    ]
    ours, theirs = map(min, zip(*rounds, strict=True))
    print(f"{n_tokens:,} tokens a prompt, {len(profile):,} characters (needles {of_needle:,})")
    print(f"{arguments.entries:,} entries: {ours * 1e3:.1f} ms a unit")
    print(f"needles (vt): {theirs * 1e3:.1f} ms a unit, ratio {theirs / ours:.2f}")
    parts = floor(memories)
    for name, took in parts.items():
        print(f"  {name}: {took * 1e3:.1f} ms")
    least_of_all = theirs + sum(parts.values())
    print(f"floor: {least_of_all * 1e3:.1f} ms a unit, ratio {theirs / least_of_all:.2f}")


if __name__ == "__main__":
    main()
