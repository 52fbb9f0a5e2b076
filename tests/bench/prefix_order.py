"""The time to generate for questions that share contexts, read by context and shuffled, on the
embedded engine.

    python -m tests.bench.prefix_order [--contexts 8] [--questions 8] [--tokens 3000] [--kv-tokens 9000]
        [--suite longbench]

With --suite locomo the contexts are conversations, asked about in the order of a locomo10.json and
shuffled: --suite locomo --contexts 2 --questions 60 --tokens 2000
--kv-tokens 3200.

The same samples in both runs. Shuffled they come as one combined JSON, whose order is kept; as
JSONL their order in the file is the same shuffled one, and reading by context puts it right. The KV
cache holds --kv-tokens, about three contexts: with room for all of them the order would not matter.
Prints the seconds between the first and the last block generated, and the share of prompt tokens
that came from the prefix cache."""  # noqa: E501

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from memray_eval.benchmarks.locomo.suite import FILES
from memray_eval.config.schema import RunConfig
from memray_eval.execution.runs import run
from tests.bench.contexts import jsonl, prose, samples

CHARACTERS_A_TOKEN = 2.4  # of the invented words, by the embedded model's tokenizer
BLOCK_TOKENS = 128
WINDOW = 8192  # the model's


def conversations(folder: Path, count: int, questions: int, tokens: int) -> tuple[Path, Path]:
    """So many conversations with so many questions each: as rows of our own that are shuffled, and
    as LoCoMo's file, in which they stand together."""
    published, rows = [], []
    for number in range(count):
        said = prose(round(tokens * CHARACTERS_A_TOKEN), number)
        parts = [said[place : place + 400] for place in range(0, len(said), 400)]
        turns = [
            {"speaker": ("Ann", "Ben")[place % 2], "dia_id": f"D1:{place}", "text": text}
            for place, text in enumerate(parts)
        ]
        asked = [
            {
                "question": f"Question {place}: which word comes after {said.split()[place]}?",
                "answer": "unknown",
                "evidence": ["D1:0"],
                "category": 4,
            }
            for place in range(questions)
        ]
        talk = {"session_1_date_time": "1 May 2024", "session_1": turns}
        one = {"sample_id": f"conv-{number}", "conversation": talk, "qa": asked}
        published.append(one)
        rows += [dict(found.fields) for found in FILES.questions(one, "locomo.json")]
    random.Random(0).shuffle(rows)
    shuffled, together = folder / "shuffled.json", folder / "locomo.json"
    shuffled.write_text(json.dumps(rows))
    together.write_text(json.dumps(published))
    return shuffled, together


def config_of(dataset: Path, out: Path, kv_tokens: int, suite: str) -> RunConfig:
    return RunConfig.model_validate(
        {
            "suite": suite,
            "dataset": str(dataset),
            "out": str(out),
            "candidates": [{"name": "small", "model": "embedded", "sampling": {"max_tokens": 8}}],
            "judge": "rules",
            "metrics": ["rule_score"],
            "engine": {
                "max_num_seqs": 4,
                # vLLM keeps a block for itself
                "max_model_len": min(WINDOW, kv_tokens - 2 * BLOCK_TOKENS),
                "engine_kwargs": {
                    "block_size": BLOCK_TOKENS,
                    "num_gpu_blocks_override": kv_tokens // BLOCK_TOKENS,
                    "enable_prefix_caching": True,
                },
            },
        }
    )


def one(dataset: Path, kv_tokens: int, suite: str) -> None:
    with tempfile.TemporaryDirectory() as out:
        config = config_of(dataset, Path(out), kv_tokens, suite)
        finished = run(config, lambda line: None, quiet=True)
        records = list(finished.folder.each())
    responses = [
        record.response
        for record in records
        if record.response is not None and record.response.error is None
    ]
    prompt = sum(response.prompt_tokens or 0 for response in responses)
    cached = sum(response.cached_tokens or 0 for response in responses)
    print(
        json.dumps(
            {
                "seconds": finished.summary.generation_s,
                "n": len(responses),
                "prompt": prompt,
                "cached": cached,
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--contexts", type=int, default=8)
    parser.add_argument("--questions", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=3000)
    parser.add_argument("--kv-tokens", type=int, default=9000)
    parser.add_argument("--suite", choices=("longbench", "locomo"), default="longbench")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(Path(options.one), options.kv_tokens, options.suite)
        return
    with tempfile.TemporaryDirectory() as folder:
        counts = options.contexts, options.questions
        if options.suite == "locomo":
            shuffled, by_context = conversations(Path(folder), *counts, options.tokens)
        else:
            rows = list(samples(*counts, round(options.tokens * CHARACTERS_A_TOKEN)))
            random.Random(0).shuffle(rows)
            by_context = jsonl(Path(folder) / "samples.jsonl", rows)
            shuffled = Path(folder) / "samples.json"
            shuffled.write_text(json.dumps(rows))
        times = {}
        for name, dataset in (("shuffled", shuffled), ("by context", by_context)):
            command = [
                sys.executable,
                "-m",
                __spec__.name,
                "--one",
                str(dataset),
                "--kv-tokens",
                str(options.kv_tokens),
                "--suite",
                options.suite,
            ]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found = json.loads(done.stdout.splitlines()[-1])
            times[name] = found["seconds"]
            hits = found["cached"] / max(1, found["prompt"])
            print(
                f"{name}: {found['n']} answers, {found['seconds']:.1f} s, {hits:.1%} from the "
                "cache",
                flush=True,
            )
    print(f"shuffled / by context: {times['shuffled'] / times['by context']:.2f}")


if __name__ == "__main__":
    main()
