"""The peak memory of a run over many contexts, against one over few: how many contexts any stage
holds is bounded.

    python -m tests.bench.context_memory [--megabytes 2 256] [--characters 1000000] [--tokenizer embedded]

Each run asks a local server about contexts of --characters, that many megabytes of them in all,
every prompt sent whole; with --tokenizer it is cut to 3,000 tokens first, as an engine would need
it. Memory is the proportional set size (shared pages counted once) of the run and all processes
below it, sampled twice a second."""  # noqa: E501

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from tests.bench.contexts import jsonl, samples
from tests.servers.process import serving_process

PAUSE_S = 0.5
MOST_TOKENS = 3000


def pss(process: psutil.Process) -> int:
    """Bytes of a process and all below it; one that ends meanwhile counts nothing."""
    total = 0
    with contextlib.suppress(psutil.Error):
        for each in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                total += each.memory_full_info().pss
    return total


def peak(dataset: Path, out: Path, base_url: str, tokenizer: str | None) -> tuple[int, float]:
    """The peak bytes of a run, and its seconds."""
    settings = ["suite=longbench", "judge=rules", "metrics=[rule_score]", "cluster.num_cpus=2"]
    server = {"name": "s", "model": "m", "backend": "openai", "base_url": base_url}
    if tokenizer:
        server |= {"tokenizer": tokenizer, "max_prompt_tokens": str(MOST_TOKENS)}
    listed = ", ".join(f"{key}: {value}" for key, value in server.items())
    config = out / "job.yaml"
    config.write_text(f"dataset: {dataset}\nout: {out}/results\ncandidates: [{{{listed}}}]\n")
    words = [word for setting in settings for word in ("--set", setting)]
    started, highest = time.monotonic(), 0
    with subprocess.Popen(
        [sys.executable, "-m", "memray_eval", "run", str(config), *words], stdout=subprocess.DEVNULL
    ) as run:
        watched = psutil.Process(run.pid)
        while run.poll() is None:
            highest = max(highest, pss(watched))
            time.sleep(PAUSE_S)
    assert run.returncode == 0
    return highest, time.monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, nargs="+", default=[2, 256])
    parser.add_argument("--characters", type=int, default=1_000_000)
    parser.add_argument("--tokenizer")
    options = parser.parse_args()
    least: int | None = None
    for megabytes in options.megabytes:
        contexts = max(1, megabytes * 1_000_000 // options.characters)
        with tempfile.TemporaryDirectory() as folder, serving_process(latency_s=0.1) as server:
            dataset = jsonl(
                Path(folder) / "samples.jsonl", samples(contexts, 1, options.characters)
            )
            highest, seconds = peak(dataset, Path(folder), server.base_url, options.tokenizer)
        least = least or highest
        print(
            f"{megabytes} MB in {contexts} contexts: peak {highest / 1e9:.2f} GB, "
            f"{(highest - least) / 1e9:+.2f} GB; {seconds:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
