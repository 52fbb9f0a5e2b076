"""The memory suite's splits in tables, with 40 entries in `large`: kappa of two blind labellers,
what was left out, the share of samples that pass memory_conduct, and the places of keys.

    python -m tests.bench.memory_splits              # baselines, on all samples
    python -m tests.bench.memory_splits --model 12   # and SmolLM2, on twelve a split

A sample's difficulty is the share of measured candidates that pass it: hard below a third, easy
from two thirds on."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import fmean, median

from memray_eval.benchmarks.memory import baselines
from memray_eval.benchmarks.memory.generator import TASKS, load_cases, samples
from memray_eval.benchmarks.memory.suite import BASELINES, SUITE
from memray_eval.config.loading import load_config
from memray_eval.metrics.assistant.memory_conduct import measure
from memray_eval.text_processing.sample_text import memory_entries
from memray_eval.types import Candidate, Response, Sample
from tests.bench.case_labels import HELD_BACK, LABELS, pairs_by_split
from tests.bench.estimates import kappa
from tests.build import finish, write_lines

MODEL = "SmolLM2-135M"
CANDIDATE = Candidate(name="c", model="m")
JOB = """
suite: memory
dataset: rows.jsonl
candidates:
  - name: smollm2
    model: embedded
    sampling: {temperature: 0.0, max_tokens: 256, repetition_penalty: 1.1, seed: 0}
metrics: [memory_conduct]
judge: rules
engine: {max_model_len: 4096}
out: results
"""
Passes = Mapping[str, bool]  # sample id -> if it passes
BySplit = Mapping[str, Sequence[Sample]]


def pass_baseline(name: str, made: Iterable[Sample]) -> Passes:
    """The samples in which a baseline does what is expected."""
    answer: Callable[[list[dict[str, str]]], str] = getattr(baselines, name)

    def reply(sample: Sample) -> Response:
        messages = SUITE.prompt(sample, CANDIDATE).messages
        return Response(text=answer([{"content": str(message.content)} for message in messages]))

    return {sample.id: measure(sample, reply(sample)).value == 1 for sample in made}


def pass_model(made: Sequence[Sample]) -> Passes:
    """The samples in which the embedded model does; those that failed are absent."""
    with tempfile.TemporaryDirectory() as name:
        rows = (json.loads(sample.model_dump_json(exclude_defaults=True)) for sample in made)
        write_lines(Path(name) / "rows.jsonl", rows)
        (Path(name) / "job.yaml").write_text(JOB)
        folder = finish(load_config(Path(name) / "job.yaml")).folder
        scores = ((record.sample.id, score) for record in folder.each() for score in record.scores)
        return {name: score.value == 1 for name, score in scores if score.value is not None}


def draw(by_split: BySplit, n: int) -> list[Sample]:
    """So many samples of each split, by a fixed seed."""
    rngs = ((Random(f"difficulty {split}"), rows) for split, rows in by_split.items())
    return [sample for rng, rows in rngs for sample in rng.sample(rows, min(n, len(rows)))]


def share(passes: Passes, rows: Iterable[Sample]) -> str:
    """The share that passes of the rows that were measured."""
    measured = [passes[row.id] for row in rows if row.id in passes]
    return f"{fmean(measured):.2f}" if measured else "-"


def difficulty(candidates: Iterable[Passes], rows: Iterable[Sample]) -> str:
    """Samples that are easy, medium and hard, of those that all candidates were measured on."""
    every = list(candidates)
    ids = [row.id for row in rows if all(row.id in passes for passes in every)]
    shares = [fmean(passes[name] for passes in every) for name in ids]
    easy, hard = sum(part >= 2 / 3 for part in shares), sum(part < 1 / 3 for part in shares)
    return f"{easy} / {len(shares) - easy - hard} / {hard}"


def places(rows: Iterable[Sample]) -> list[str]:
    """Mean place of required and of forbidden keys (0 first, 1 last), and how often the last line
    is forbidden."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        keys = [key for key, _ in memory_entries(row)]
        for role, listed in (("required", row.required_keys), ("forbidden", row.forbidden_keys)):
            found[role] += [keys.index(key) / (len(keys) - 1) for key in listed]
        found["last"].append(keys[-1] in row.forbidden_keys)
    return [f"{fmean(found[name]):.2f}" for name in ("required", "forbidden", "last")]


def agreement(split: str) -> list[str]:
    """Kappa (and n) of what a good reply does and of the roles of keys, of the cases and of those
    held back."""
    cells = []
    for file in (LABELS, HELD_BACK):
        roles, replies = pairs_by_split(file)
        shared = roles.get(split) or (roles.get("cases") if split in replies else None)
        for pairs in (replies.get(split), shared):
            cells.append(f"{kappa(pairs):.2f} ({len(pairs)})" if pairs else "-")
    return cells


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    for cells in (heads, ["---"] * len(heads), *rows):
        print("|", *(f"{cell} |" for cell in cells))


def show_splits(by_split: BySplit, measured: Mapping[str, Passes]) -> None:
    left_out = [name for case in load_cases() for name in case.leave_out]
    heads = "split, n, κ replies, κ keys, κ replies held back, κ keys held back, cases left out"
    table(
        [*heads.split(", "), *measured],
        (
            [split, len(rows), *agreement(split), sum(name.startswith(split) for name in left_out)]
            + [share(passes, rows) for passes in measured.values()]
            for split, rows in by_split.items()
        ),
    )


def show_difficulty(by_split: BySplit, measured: Mapping[str, Passes]) -> None:
    baselines = [measured[name] for name in BASELINES]
    heads = (
        "split, required place, forbidden place, last line forbidden, "
        "easy / medium / hard by baselines, by all measured"
    )
    table(
        heads.split(", "),
        (
            [split, *places(rows)]
            + [difficulty(candidates, rows) for candidates in (baselines, measured.values())]
            for split, rows in by_split.items()
        ),
    )
    by_case: dict[str, list[bool]] = defaultdict(list)
    for row in (row for split, rows in by_split.items() for row in rows if split != "languages"):
        by_case[row.metadata["case"]] += [passes[row.id] for passes in baselines]
    means = sorted((fmean(passes), case) for case, passes in by_case.items())
    print(f"\nby case, over the baselines (median {median(mean for mean, _ in means):.2f}):")
    print(", ".join(f"{case} {mean:.2f}" for mean, case in means))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=int, default=0, help=f"samples a split for {MODEL}")
    n_asked = parser.parse_args().model
    made = list(samples(TASKS, [40]))
    by_split = {split: [row for row in made if row.task == split] for split in TASKS}
    measured = {name: pass_baseline(name, made) for name in BASELINES}
    if n_asked:
        measured[MODEL] = pass_model(draw(by_split, n_asked))
    show_splits(by_split, measured)
    print("\nhow often dump passes, and so does not reveal, or reveals in the twin:")
    for split in ("not_to_reveal", "forget"):
        for kind in dict.fromkeys(row.metadata["kind"] for row in by_split[split]):
            rows = [row for row in by_split[split] if row.metadata["kind"] == kind]
            print(f"  {split}, {kind}: {share(measured['dump'], rows)} (n {len(rows)})")
    print()
    show_difficulty(by_split, measured)


if __name__ == "__main__":
    main()
