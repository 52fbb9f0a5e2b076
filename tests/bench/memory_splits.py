"""The memory suite's splits in tables, with 40 entries in `large`: kappa of two blind labellers,
what was left out, the share of samples that pass memory_conduct, and the places of keys.

    python -m tests.bench.memory_splits              # baselines, on all samples
    python -m tests.bench.memory_splits --model 12   # and SmolLM2, on twelve a split
    python -m tests.bench.memory_splits --nearest 10 # only the nearest questions, by the local embeddings

A sample's difficulty is the share of measured candidates that pass it: hard below a third, easy
from two thirds on. Questions of one case are not compared: twins and changes of a case are alike by
design."""  # noqa: E501

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import fmean, median

import numpy as np

from memray_eval.benchmarks.conversations import load_encoder
from memray_eval.benchmarks.memory import baselines
from memray_eval.benchmarks.memory.generator import TASKS, load_cases, samples
from memray_eval.benchmarks.memory.suite import BASELINES, SUITE
from memray_eval.config.loading import load_config
from memray_eval.metrics.assistant.memory_conduct import measure
from memray_eval.text_processing.numerals import memory_entries
from memray_eval.types import Candidate, Response, Sample
from tests.bench.estimates import kappa
from tests.build import finish, write_lines
from tests.conftest import shipped_samples

LABELS = Path(__file__).parents[1] / "data" / "memory_case_labels.jsonl"
HELD_BACK = LABELS.parent / "memory_held_back" / "labels.jsonl"

BOTH = {"labeller_1", "labeller_2"}
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


def pairs_by_split(
    file: Path = LABELS,
) -> tuple[dict[str, list[tuple[str, str]]], dict[str, list[tuple[str, str]]]]:
    """The labels of keys, by split, and those of samples, by split. An unsure label
    counts as the label; what one of them has not labelled is left out."""
    roles, samples = defaultdict(list), defaultdict(list)
    for line in file.read_text("utf-8").splitlines():
        case = json.loads(line)
        for by in filter(BOTH.issubset, case["roles"].values()):
            roles[case.get("split", "cases")].append((by["labeller_1"], by["labeller_2"]))
        for name, by in case["samples"].items():
            if BOTH.issubset(by):
                both = by["labeller_1"].rstrip("?"), by["labeller_2"].rstrip("?")
                samples[name.partition("-")[0]].append(both)
    return roles, samples


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


def nearest(texts: Sequence[str], groups: Sequence[str], n: int) -> list[tuple[float, int, int]]:
    """The n nearest pairs of texts of different groups: cosine and places."""
    vectors = load_encoder("local")(texts)
    alike = np.triu(vectors @ vectors.T, 1)
    alike[np.equal.outer(np.asarray(groups), np.asarray(groups))] = -1
    best = np.argsort(-alike, axis=None)[:n]
    return [(float(alike.flat[at]), *map(int, divmod(int(at), len(texts)))) for at in best]


def nearest_questions(n: int) -> list[tuple[float, str, str]]:
    """The n nearest pairs of questions of different cases: cosine and the samples' ids."""
    rows = {s.query: s for s in (*shipped_samples(), *samples(TASKS, [40]))}
    ids = [sample.id for sample in rows.values()]
    groups = [sample.metadata.get("case", sample.id) for sample in rows.values()]
    return [(cosine, ids[one], ids[two]) for cosine, one, two in nearest([*rows], groups, n)]


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
    parser.add_argument("--nearest", type=int, help="prints so many of the nearest questions")
    options = parser.parse_args()
    if options.nearest:
        for cosine, *ids in nearest_questions(options.nearest):
            print(f"{cosine:.3f}", *ids)
        return
    n_asked = options.model
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
