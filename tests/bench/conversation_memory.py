"""The time and peak memory of reading LongMemEval's shapes: haystacks made in its format around
its questions, or around invented ones, through scan, arms and prompts.

    python -m tests.bench.conversation_memory [--questions FILE] [--count 500] [--sessions 50]
        [--tokens 115000] [--prompts 20] [--window 8192]

The shape of M: --count 20 --sessions 500 --tokens 1500000. Every question is read and checked; the
first --prompts are asked in every arm and cut to --window tokens by the embedded model's tokenizer.
Memory is the peak of this process above what it held with the tokenizer loaded."""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from memray_eval.benchmarks import get_suite
from memray_eval.datasets.reading import SampleReader
from memray_eval.datasets.scan import read_samples, scan
from memray_eval.models.embedded_model import resolve_model
from memray_eval.models.tokenizers import load_tokenizer
from memray_eval.stages.render import note_passages, render
from memray_eval.types import Candidate, Retrieval
from tests.bench.contexts import prose

CHARACTERS_A_TOKEN = 2.4  # of the invented words, by the embedded model's tokenizer
TURNS = 10
ARMS = ("full", "oracle", "none", "retrieved")


def questions(file: Path | None, count: int) -> Iterator[dict[str, Any]]:
    """Questions of the published slice, or invented ones, every tenth of which has no answer."""
    if file is not None:
        with file.open() as lines:
            yield from map(json.loads, islice(lines, count))
        return
    for number in range(count):
        name = f"q{number}{'_abs' if number % 10 == 9 else ''}"
        yield {
            "question_id": name,
            "question_type": "multi-session",
            "question": "Which word did I say last?",
            "answer": "mala",
            "question_date": "2024/05/20",
            "answer_session_ids": [f"answer_{name}_1", f"answer_{name}_2"],
        }


def haystack(asked: dict[str, Any], sessions: int, tokens: int, number: int) -> dict[str, Any]:
    """A record with its haystack: sessions of equal length, those of the answer spread evenly."""
    answers = asked["answer_session_ids"]
    ids = [f"filler_{number}_{place}" for place in range(sessions - len(answers))]
    for place, name in enumerate(answers, 1):
        ids.insert(place * len(ids) // (len(answers) + 1), name)
    each = round(tokens * CHARACTERS_A_TOKEN / len(ids) / TURNS)
    made = []
    for place, name in enumerate(ids):
        said = prose(each * TURNS, number * sessions + place)
        made.append([
            {
                "role": ("user", "assistant")[turn % 2],
                "content": said[turn * each : (turn + 1) * each],
                "has_answer": name in answers and turn == 2,
            }
            for turn in range(TURNS)
        ])  # fmt: skip
    dates = [f"2023/05/{1 + place % 28:02}" for place in range(len(ids))]
    return {
        **asked,
        "haystack_session_ids": ids,
        "haystack_dates": dates,
        "haystack_sessions": made,
    }


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--questions", type=Path)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=115_000)
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--window", type=int, default=8192)
    options = parser.parse_args()
    suite = get_suite("longmemeval")
    reader = SampleReader(
        suite="longmemeval", adapt=suite.adapt, known_tasks=suite.tasks, files=suite.files
    )
    tokenizer = load_tokenizer(resolve_model("embedded"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "longmemeval_x.json"
        with path.open("w") as file:
            for number, asked in enumerate(questions(options.questions, options.count)):
                file.write("[" if number == 0 else ",")
                json.dump(haystack(asked, options.sessions, options.tokens, number), file)
            file.write("]")
        base = peak_mb()
        print(f"{path.stat().st_size / 2**20:,.0f} MB; base {base:,.0f} MB", flush=True)
        started = time.monotonic()
        found = scan(str(path), reader, on_problem=print)
        took = time.monotonic() - started
        print(
            f"scan: {found.n_samples} questions, {found.n_invalid} invalid, {took:.1f} s, "
            f"{peak_mb() - base:,.0f} MB above the base",
            flush=True,
        )
        started, unanswerable, cut, seconds = time.monotonic(), 0, 0, dict.fromkeys(ARMS, 0.0)
        samples = (one for shard in found.shards for one in read_samples(shard, reader))
        n_read = 0
        for sample in samples:
            n_read += 1
            unanswerable += sample.metadata["unanswerable"]
            for arm in ARMS if n_read <= options.prompts else ():
                how = Retrieval(k=20) if arm == "retrieved" else None
                candidate = Candidate(name=arm, model="m", context=arm, retrieved=how)  # type: ignore[arg-type]
                begun = time.monotonic()
                prompt = suite.prompt(sample, candidate)
                rendered = render(prompt, tokenizer, options.window - 256)
                seconds[arm] += time.monotonic() - begun
                cut += note_passages(prompt, rendered.kept).get("sessions_left_out", 0)
                assert len(rendered.tokens) <= options.window - 256
        took = time.monotonic() - started
        print(
            f"read: {n_read} questions, {unanswerable} unanswerable, {took:.1f} s with "
            f"{options.prompts} asked in {len(ARMS)} arms; {cut:,} sessions left out; "
            f"{peak_mb() - base:,.0f} MB above the base"
        )
        each = ", ".join(f"{arm} {s / options.prompts:.2f}" for arm, s in seconds.items())
        print(f"seconds a prompt: {each}")


if __name__ == "__main__":
    main()
