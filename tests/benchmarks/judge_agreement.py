"""How far semantic_correctness agrees with people, on answers of five systems to questions of Natural Questions (EVOUNA).

    python -m tests.benchmarks.judge_agreement [--embedded | --judge PROVIDER/MODEL] [--rubric NAME] [--limit N] [--data FILE]

The published file becomes responses for `memray-eval evaluate`, which judges them in a process of its own; its records are
read back and held against the human labels. Questions marked improper are left out, as in the paper. Printed per system and
over all: n, coverage, the share on which judge and people agree, Cohen's kappa, and how often people agree with the verdict
CORRECT and with INCORRECT. `--limit` takes the first N questions, so 5 N responses.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from memray_eval.results import RunFolder
from memray_eval.types import Record

DATA = Path(__file__).parents[3] / "shared" / "data" / "judge-validation" / "evouna_NQ_300.json"
SYSTEMS = ("fid", "gpt35", "chatgpt", "gpt4", "newbing")
METRIC = "semantic_correctness"


class Pair(NamedTuple):
    """What a person and the judge say of one response; the judge None where it gave no verdict."""

    system: str
    human: bool
    judge: bool | None


def responses(data: Path, limit: int | None) -> Iterator[dict[str, Any]]:
    """Rows for `evaluate`. Several golden answers are parted by a slash in the published file."""
    proper = [row for row in json.loads(data.read_text("utf-8")) if not row["improper"]]
    for number, row in enumerate(proper[:limit]):
        for system in SYSTEMS:
            yield {
                "id": f"nq-{number:04d}-{system}",
                "task": "nq",
                "query": row["question"],
                "answers": row["golden_answer"].split("/"),
                "response": row[f"answer_{system}"] or "",
                "metadata": {"human": row[f"judge_{system}"], "system": system},
            }


def judged(rows: Iterable[dict[str, Any]], judge: str, settings: list[str]) -> Iterator[Record]:
    """The records of an `evaluate` of these rows, by the command line. Raises SystemExit where it fails altogether."""
    with tempfile.TemporaryDirectory(prefix="memray_eval_agreement_") as folder:
        given = Path(folder) / "responses.jsonl"
        given.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
        command = [sys.executable, "-m", "memray_eval", "evaluate", str(given), "--metrics", METRIC, "--judge", judge]
        command += ["--out", f"{folder}/results", *(word for setting in settings for word in ("--set", setting))]
        done = subprocess.run(command, stdout=sys.stderr, check=False)  # its report is not this one's
        runs = [path for path in Path(folder, "results").glob("*") if path.is_dir()]
        if done.returncode > 1 or len(runs) != 1:  # 1: more units failed than is tolerated; they count against coverage
            raise SystemExit(f"`{' '.join(command)}` ended with {done.returncode}")
        yield from RunFolder(str(runs[0])).each()


def pair(record: Record) -> Pair:
    (score,) = record.scores
    about = record.sample.metadata
    return Pair(about["system"], about["human"], None if score.value is None else score.value == 1.0)


def kappa(pairs: list[Pair]) -> float | None:
    """Cohen's kappa of the pairs that have a verdict; None where chance alone would agree on all."""
    n = len(pairs)
    agreed = sum(one.human == one.judge for one in pairs) / n
    human, judge = sum(one.human for one in pairs) / n, sum(bool(one.judge) for one in pairs) / n
    by_chance = human * judge + (1 - human) * (1 - judge)
    return None if by_chance == 1.0 else (agreed - by_chance) / (1 - by_chance)


def line(name: str, pairs: list[Pair]) -> str:
    scored = [one for one in pairs if one.judge is not None]
    if not scored:
        return f"{name:<10} {len(pairs):>5}    0.0%"
    said = {verdict: [one.human for one in scored if one.judge is verdict] for verdict in (True, False)}
    shares = {
        verdict: sum(human is verdict for human in humans) / len(humans) if humans else None for verdict, humans in said.items()
    }
    figures = [sum(one.human == one.judge for one in scored) / len(scored), kappa(scored), shares[True], shares[False]]
    shown = "  ".join(f"{'-' if figure is None else f'{figure:.3f}':>9}" for figure in figures)
    return f"{name:<10} {len(pairs):>5}  {len(scored) / len(pairs):>6.1%}  {shown}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--judge", default="rules", help="rules, or PROVIDER/MODEL (paid)")
    parser.add_argument("--embedded", action="store_true", help="the small local model")
    parser.add_argument("--rubric", default="strict", help="strict, lenient, or the path of a text file")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--set", action="append", default=[], dest="settings", help="further settings for `evaluate`")
    options = parser.parse_args()
    judge = "embedded" if options.embedded else options.judge
    settings = [*options.settings, f"rubrics.{METRIC}={options.rubric}"]
    pairs = [pair(record) for record in judged(responses(options.data, options.limit), judge, settings)]
    print(
        f"{METRIC} by {judge}"
        + ("" if judge == "rules" else f", rubric {options.rubric}")
        + f", against people ({options.data.name})"
    )
    print(f"{'system':<10} {'n':>5}  {'cover':>6}  {'agreement':>9}  {'kappa':>9}  {'CORRECT':>9}  {'INCORRECT':>9}")
    for system in SYSTEMS:
        print(line(system, [one for one in pairs if one.system == system]))
    print(line("all", pairs))


if __name__ == "__main__":
    main()
