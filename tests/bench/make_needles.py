"""MB of context a second that one core generates, counts and writes, by task, with a real
tokenizer.

    python -m tests.bench.make_needles [--of needles|mrcr] [--lengths 32k,128k] [--tasks all] [--languages en] [--tokenizer embedded] [--mb 64]

Each task, language and length is made until it has `--mb` of context, and written to Parquet. The
clock runs over everything, the pools and the samples that are tokenised in full included, but not
over loading the tokenizer; the first task that needs a pool pays for it, as in a real run. Seconds
are the process's CPU time, for machines that are shared; the wall time of the whole is printed
beside it. Contexts are counted in UTF-8 bytes. At the end every `--check`-th sample is tokenised in
full, and the run fails if one is not of its exact length."""  # noqa: E501

from __future__ import annotations

import argparse
import itertools
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

# One core, also for the tokenizer
os.environ |= {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

import pyarrow as pa
import pyarrow.parquet as pq

from memray_eval.benchmarks.generator import generate, parquet
from memray_eval.benchmarks.generator.plan import Plan, plan_of
from memray_eval.benchmarks.generator.question_order import length_label
from memray_eval.benchmarks.generator.resources import Resources
from memray_eval.benchmarks.generator.sample_spec import SampleDraft
from memray_eval.benchmarks.mrcr.generator import MRCR
from memray_eval.benchmarks.needles.generator.tasks import NEEDLES
from memray_eval.models.tokenizers import load_tokenizer
from memray_eval.types import Sample

TASK_SETS = {one.suite: one for one in (NEEDLES, MRCR)}


def until(samples: Iterable[Sample], limit_bytes: int) -> Iterator[Sample]:
    made = 0
    for sample in samples:
        yield sample
        made += len(sample.context or "")
        if made >= limit_bytes:
            return


def one(plan: Plan, resources: Resources, limit_bytes: int, path: str) -> tuple[float, float]:
    """MB of context and CPU seconds of one task, language and length."""
    started = time.process_time()
    written = parquet.write(until(generate.samples(plan, resources), limit_bytes), path)
    return written.context_bytes / 1e6, time.process_time() - started


def wrong(path: str, plan: Plan, resources: Resources, step: int) -> list[str]:
    """The samples, of every `step`-th one, whose length is not exactly what it should be."""
    rows = pq.ParquetFile(path).iter_batches(
        batch_size=1, columns=["id", "context", "query", "metadata"]
    )
    picked = (batch.to_pylist()[0] for batch in itertools.islice(rows, 0, None, step))
    found = []
    for row in picked:
        draft = SampleDraft(row["context"], row["query"], (), None, 0)
        tokens = plan.task_set.count(resources.counter, draft)
        if f'"length":{tokens},' not in row["metadata"]:
            found.append(row["id"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--of", default="needles", choices=TASK_SETS)
    parser.add_argument("--lengths", default="32k,128k")
    parser.add_argument("--tasks", default="all")
    parser.add_argument("--languages", default="en")
    parser.add_argument("--tokenizer", default="embedded")
    parser.add_argument("--mb", type=float, default=64)
    parser.add_argument("--check", type=int, default=50)
    asked = parser.parse_args()
    pa.set_cpu_count(1)
    whole = plan_of(TASK_SETS[asked.of], asked.tasks, asked.languages, asked.lengths, 11, 10_000, 0)
    resources = Resources(load_tokenizer(asked.tokenizer), whole.seed)
    started, sums, bad = time.monotonic(), [0.0, 0.0], list[str]()
    with tempfile.TemporaryDirectory() as folder:
        for task, language, length in whole.groups():
            plan = whole.model_copy(
                update={"tasks": (task,), "languages": (language,), "lengths": (length,)}
            )
            path = str(Path(folder) / "made.parquet")
            megabytes, seconds = one(plan, resources, int(asked.mb * 1e6), path)
            bad += wrong(path, plan, resources, asked.check)
            sums = [sums[0] + megabytes, sums[1] + seconds]
            print(
                f"{task:<16} {language} {length_label(length):>5}  {megabytes / seconds:7.1f} MB/s",
                flush=True,
            )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    speed, wall_s = sums[0] / sums[1], time.monotonic() - started
    print(
        f"all: {sums[0]:,.0f} MB, {speed:.1f} MB/s a core, wall {wall_s:.0f} s, peak {peak:.2f} GiB"
    )
    if bad:
        sys.exit(f"not of exact length: {', '.join(bad[:10])}")


if __name__ == "__main__":
    main()
