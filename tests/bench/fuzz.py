"""Mutated inputs of three kinds, each tried in this process: what raises anything but an EvalError
(or a row error), or makes a score or an empty response of what holds none, is printed with its
number, by which it comes again.

    python -m tests.bench.fuzz readers|replies|config [--inputs 100000] [--first 0]

Readers: the field cases, the chats of tests/data and the shipped datasets, as file bytes. Replies:
the three providers' completions and odd replies of tests/wire, as bodies. Config: the shipped jobs,
as YAML, and settings of `--set`."""

from __future__ import annotations

import argparse
import base64
import json
import os
import random
import re
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from memray_eval.config.loading import load_config
from memray_eval.datasets.parsing import Problem
from memray_eval.datasets.scan import read_records, scan
from memray_eval.errors import EvalError
from memray_eval.execution.prepare.resolve import resolve_reading
from memray_eval.judges.adapter import JudgeSpec
from memray_eval.judges.structured_judge import BatchedVerdict, CallPolicy
from memray_eval.provider_http.replies import HttpReply
from memray_eval.types import EXISTING
from tests.build import build_config
from tests.wire.test_odd_replies import BODIES, BUILDERS, TABLES, Rating

REPOSITORY = Path(__file__).parents[2]
DATA = REPOSITORY / "tests/data"
# Tries one input; what is wrong with what came of it
Attempt: TypeAlias = Callable[[random.Random], str | None]
LARGEST = 20_000  # bytes of a seed
SHOWN = 20
TOKENS: Sequence[bytes] = (
    *(
        b'"',
        b"'",
        b",",
        b";",
        b"\t",
        b"\n",
        b"\r\n",
        b"\x00",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\xc3",
    ),
    *(b"{", b"}", b"[", b"]", b"null", b"true", b"NaN", b"Infinity", b"-1", b"1e999", b"0" * 400),
    *(
        b"\\ud83d",
        b"\\u0000",
        b"[" * 300,
        b'{"a":' * 300,
        b": ",
        b"- ",
        b"&a ",
        b"*a",
        b"!!python/x ",
    ),
    *(b'"role": "tool"', b'"content": []', b'"response": {}', b'"id": 5', b"99999999999999999999"),
)
# What may well be read as a response of no text
NO_TEXT = re.compile(
    rb'""|null|None|NaN|nan|N/A|\[\s*\]|\{\s*\}|""|[,;\t]\s*[,;\t\r\n]|[,;\t]\s*$|NA|"\s*"|\\u0000|\x00|"[^"]*$'
)


def mutate(seed: bytes, draw: random.Random) -> bytes:
    """One to four changes: bytes flipped, stretches cut or doubled, tokens put in, an early end."""
    data = bytearray(seed)
    for _ in range(draw.choice((1, 1, 2, 4))):
        at, end = sorted(draw.randrange(len(data) + 1) for _ in range(2))
        end = min(end, at + draw.choice((1, 4, 30, 400)))
        match draw.randrange(6):
            case 0:
                data[at:end] = bytes(draw.randrange(256) for _ in range(end - at))[:8]
            case 1:
                del data[at:end]
            case 2:
                data[at:at] = data[at:end] * draw.choice((1, 2, 50))
            case 3:
                data[at:at] = draw.choice(TOKENS)
            case 4:
                data[at:end] = draw.choice(TOKENS)
            case _:
                del data[end:]
        data = data[: 4 * LARGEST]
    return bytes(data)


def file_seeds() -> list[tuple[str, bytes]]:
    """Names and bytes of files that can be read."""
    folders = [DATA / "field_cases/chats", DATA / "field_cases/files", REPOSITORY / "dataset"]
    files = sorted(path for folder in folders for path in folder.rglob("*.*") if path.is_file())
    seeds = [(path.name, path.read_bytes()[:LARGEST]) for path in files]
    for line in (DATA / "chats/cases.jsonl").read_text("utf-8").splitlines():
        case = json.loads(line)
        content = case.get("content", "").encode() or base64.b64decode(case.get("base64", ""))
        seeds.append((case["file"], content))
    return [(name, data) for name, data in seeds if data and not name.endswith((".md", ".yaml"))]


def readers(outcomes: Counter[str]) -> Attempt:
    seeds, folder = file_seeds(), Path(tempfile.mkdtemp(dir="/dev/shm"))
    candidates = [{"name": EXISTING, "model": EXISTING, "backend": EXISTING}]

    def attempt(draw: random.Random) -> str | None:
        name, seed = draw.choice(seeds)
        data = mutate(seed, draw)
        (path := folder / name).write_bytes(data)
        try:
            suite = draw.choice(("qa", "memory", "chat", "text"))
            out = str(folder / "out")
            config = build_config(dataset=str(path), candidates=candidates, suite=suite, out=out)
            spec = resolve_reading(config).with_columns(lambda line: None)
            problems = list[Problem]()
            found = scan(spec.dataset, spec.reader, on_problem=problems.append)
            outcomes["rows with an error"] += len(problems)
            for shard in found.shards:
                for record in read_records(shard, spec.reader):
                    said = record.response
                    outcomes["rows"] += 1
                    is_silent = said is not None and not said.text.strip() and said.error is None
                    if is_silent and not said.no_answer and not NO_TEXT.search(data):
                        return f"an empty response of a row that has none: {name}"
        finally:
            path.unlink()
        return None

    return attempt


def replies(outcomes: Counter[str]) -> Attempt:
    os.environ["TEST_KEY"] = "sk-test"
    spec = {"name": "j/m", "model": "m", "base_url": "http://none.invalid/v1"}
    judges = {
        wire: build(JudgeSpec(**spec, api_key_env="TEST_KEY"), CallPolicy())
        for wire, build in BUILDERS.items()
    }
    seeds = [
        (wire, reply.body)
        for wire, table in TABLES.items()
        for reply, _ in (*table.values(), *BODIES.values())
        if isinstance(reply.body, bytes) and 0 < len(reply.body) < LARGEST
    ]

    def read_by(wire: str, body: bytes) -> BatchedVerdict:
        return judges[wire].read_batched(HttpReply(200, body), Rating, "key", "unit metric")

    good = [seed for seed in seeds if read_by(*seed).outcome == "verdict"]

    def attempt(draw: random.Random) -> str | None:
        wire, seed = draw.choice(good if draw.random() < 0.7 else seeds)
        body = mutate(seed, draw)
        read = read_by(wire, body)
        outcomes[read.outcome] += 1
        if read.outcome != "verdict":
            return None
        assert read.call is not None
        verdict = Rating.model_validate_json(read.call.judgment)
        return None if str(verdict.score).encode() in body else f"{wire}: a score of nothing"

    return attempt


def config(outcomes: Counter[str]) -> Attempt:
    seeds = [path.read_bytes() for path in sorted((REPOSITORY / "jobs").glob("*.yaml"))]
    keys = sorted(
        {key for seed in seeds for key in re.findall(r"^ *([a-z_]+):", seed.decode(), re.M)}
    )
    path = Path(tempfile.mkdtemp(dir="/dev/shm")) / "job.yaml"

    def attempt(draw: random.Random) -> str | None:
        path.write_bytes(mutate(draw.choice(seeds), draw) if draw.random() < 0.7 else seeds[0])
        value = mutate(draw.choice((b"1", b"[a, b]", b"{a: 1}", b"true", b"x")), draw)
        dotted = ".".join(draw.choices(keys, k=draw.choice((1, 1, 2, 3))))
        setting = f"{dotted}={value.decode('utf-8', 'replace')}"
        load_config(path, settings=[setting] if draw.random() < 0.5 else [])
        outcomes["configs"] += 1
        return None

    return attempt


KINDS = {"readers": readers, "replies": replies, "config": config}


def finds(kind: str, first: int, inputs: int, outcomes: Counter[str]) -> Iterator[str]:
    attempt = KINDS[kind](outcomes)
    for number in range(first, first + inputs):
        try:
            found = attempt(random.Random(f"{kind} {number}"))
        except EvalError as error:
            outcomes[type(error).__name__] += 1
            found = None if str(error).strip() else f"{type(error).__name__} that says nothing"
        except Exception:
            found = traceback.format_exc(limit=-4)
        if found is not None:
            yield f"{kind} {number}: {found}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    outcomes, n_finds, started = Counter[str](), 0, time.process_time()
    kinds = Counter[Any]()
    for find in finds(options.kind, options.first, options.inputs, outcomes):
        n_finds += 1
        kinds[cause := find.strip().splitlines()[-1][:80]] += 1
        if kinds[cause] == 1 and len(kinds) <= SHOWN:
            print(find, flush=True)
    took = time.process_time() - started
    print(f"{options.kind}: {options.inputs:,} inputs in {took:.0f} s of CPU, {n_finds} finds")
    print("; ".join(f"{name} {n:,}" for name, n in outcomes.most_common()))


if __name__ == "__main__":
    main()
