"""Units a second of a run over memories of 4,000 entries, against a run over needles of as many
tokens: from the file to the summary, answered by a function at once, scored by code.

    python -m tests.bench.large_memories [--entries 4000] [--samples 74]

Seconds are the process's CPU time, less those of a run of the rows by which columns are found."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from memray_eval.benchmarks.generator import generate
from memray_eval.benchmarks.generator.plan import plan_of
from memray_eval.benchmarks.generator.resources import Resources
from memray_eval.benchmarks.memory.generator import samples
from memray_eval.benchmarks.memory.suite import SUITE
from memray_eval.benchmarks.needles.generator.tasks import NEEDLES
from memray_eval.config.loading import load_config
from memray_eval.datasets.columns import LOOKED_AT
from memray_eval.models.tokenizers import load_tokenizer
from memray_eval.types import Candidate, Sample
from tests.build import finish, write_lines

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


def rate(rows: Sequence[Sample], suite: str, metric: str) -> float:
    """Units a second."""
    few = min(seconds(rows[:LOOKED_AT], suite, metric) for _ in range(2))
    return (len(rows) - LOOKED_AT) / (seconds(rows, suite, metric) - few)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=4000)
    parser.add_argument("--samples", type=int, default=74)
    arguments = parser.parse_args()
    made = islice(samples(["large"], [arguments.entries]), arguments.samples)
    memories = list(made)
    tokenizer = load_tokenizer("embedded")
    profile = SUITE.prompt(memories[0], Candidate(name="c", model="m")).messages[0].content
    n_tokens = len(tokenizer.encode(profile))
    plan = plan_of(NEEDLES, "kv_retrieval", "en", str(n_tokens), 1, arguments.samples, 0)
    needles = list(generate.samples(plan, Resources(tokenizer, 0), lambda *_: None))
    ours, theirs = (
        rate(memories, "memory", "memory_conduct"),
        rate(needles, "needles", "rule_score"),
    )
    print(f"{arguments.entries:,} entries, {n_tokens:,} tokens: {ours:.1f} units/s")
    print(f"needles (kv_retrieval) of {n_tokens:,} tokens: {theirs:.1f} units/s")
    print(f"ratio {ours / theirs:.2f}")


if __name__ == "__main__":
    main()
