"""The time to generate for questions that share contexts, read by context and shuffled, on the
embedded engine.

    python -m tests.bench.prefix_order [--contexts 8] [--questions 8] [--tokens 3000] [--kv-tokens 9000]

The same samples in both runs. Shuffled they come as one combined JSON, whose order is kept; as
JSONL their order in the file is the same shuffled one, and reading by context puts it right. The KV
cache holds --kv-tokens, about three contexts: with room for all of them the order would not matter.
Prints the seconds between the first and the last block generated, and the share of prompt tokens
that came from the prefix cache."""  # noqa: E501

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from memray_eval.config.schema import RunConfig
from tests.build import finish, write_lines

CHARACTERS_A_TOKEN = 2.4  # of the invented words, by the embedded model's tokenizer
STARTS, ENDS = ("ma", "ne", "ti", "so", "lu", "ra", "ke", "vo"), ("lan", "mir", "don", "sek")
WORDS = [f"{start}{end}" for start in STARTS for end in ENDS]
BLOCK_TOKENS = 128
WINDOW = 8192  # the model's


def prose(characters: int, seed: int) -> str:
    """Invented words, in sentences, of this length in all."""
    draw, parts, length = random.Random(seed), list[str](), 0
    while length < characters:
        sentence = " ".join(draw.choices(WORDS, k=12)).capitalize() + ". "
        parts.append(sentence)
        length += len(sentence)
    return "".join(parts)[:characters]


def samples(contexts: int, questions: int, characters: int) -> Iterable[dict[str, Any]]:
    """So many questions on each of so many contexts, of this length each, in our own format, the
    questions on one context side by side."""
    for number in range(contexts):
        context = prose(characters, number)
        for question in range(questions):
            word = context.split()[question * 7 + 3]
            yield {
                "id": f"c{number}-q{question}",
                "task": "qasper",
                "query": f"Question {question}: which word comes after {word}?",
                "context": context,
                "answers": ["unknown"],
                "metadata": {"length": characters},
            }


def config_of(dataset: Path, out: Path, kv_tokens: int) -> RunConfig:
    return RunConfig.model_validate(
        {
            "suite": "longbench",
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


def one(dataset: Path, kv_tokens: int) -> None:
    with tempfile.TemporaryDirectory() as out:
        finished = finish(config_of(dataset, Path(out), kv_tokens))
        records = list(finished.folder.each())
    responses = [
        record.response
        for record in records
        if record.response is not None and record.response.error is None
    ]
    prompt = sum(response.prompt_tokens or 0 for response in responses)
    cached = sum(response.cached_tokens or 0 for response in responses)
    seconds = finished.summary.generation_s
    counts = {"n": len(responses), "prompt": prompt, "cached": cached}
    print(json.dumps({"seconds": seconds, **counts}))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--contexts", type=int, default=8)
    parser.add_argument("--questions", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=3000)
    parser.add_argument("--kv-tokens", type=int, default=9000)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(Path(options.one), options.kv_tokens)
        return
    with tempfile.TemporaryDirectory() as folder:
        counts = options.contexts, options.questions
        rows = list(samples(*counts, round(options.tokens * CHARACTERS_A_TOKEN)))
        random.Random(0).shuffle(rows)
        by_context = write_lines(Path(folder) / "samples.jsonl", rows)
        shuffled = Path(folder) / "samples.json"
        shuffled.write_text(json.dumps(rows))
        times = {}
        for name, dataset in (("shuffled", shuffled), ("by context", by_context)):
            command = [sys.executable, "-m", __spec__.name, "--one", str(dataset)]
            command += ["--kv-tokens", str(options.kv_tokens)]
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
