"""The commands that make datasets: dataset make needles."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Annotated

import typer

from memray_eval.cli.app import dataset_app, say, show
from memray_eval.types import Sample

PROGRESS_S = 5.0

make_app = typer.Typer(no_args_is_help=True, help="Generate datasets.")
dataset_app.add_typer(make_app, name="make")


@make_app.callback()
def make() -> None:
    """Generate datasets."""


@make_app.command("needles")
def make_needles(
    out: Annotated[str, typer.Option(help="The .parquet file to write.", show_default=False)],
    lengths: Annotated[
        str, typer.Option(help="Tokens, comma-separated: 4k,32k,128k,1M (k = 1024).")
    ] = "4k",
    depths: Annotated[
        int, typer.Option(help="Depths of the needle, in even steps from 0 to 100 percent.")
    ] = 11,
    samples: Annotated[
        int, typer.Option(help="Samples of each task, language, length and depth.")
    ] = 1,
    tasks: Annotated[
        str, typer.Option(help="Comma-separated, or `all`; a wrong name lists them.")
    ] = "all",
    languages: Annotated[str, typer.Option(help="en, zh, or both, comma-separated.")] = "en",
    seed: Annotated[int, typer.Option(help="Another seed, other samples.")] = 0,
    tokenizer: Annotated[
        str, typer.Option(help="Whose tokens count: `embedded`, a hub name, a folder.")
    ] = "embedded",
    haystack: Annotated[
        str | None, typer.Option(help="A text of yours instead of generated prose.")
    ] = None,
    documents: Annotated[
        str | None,
        typer.Option(
            help="A .jsonl of {question, answers, gold, documents} for qa, instead of generated "
            "ones."
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N samples.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite the file if it is there.")
    ] = False,
) -> None:
    """Generate needle tasks (InfiniteBench's and RULER's kinds) of exact length by a model's own
    tokenizer.

    The length is that of the context, an empty line and the question; a chat template's tokens come
    on top."""
    from memray_eval.benchmarks.needles.generator import generate, parquet
    from memray_eval.benchmarks.needles.generator.plan import plan_of
    from memray_eval.benchmarks.needles.generator.question_order import length_label
    from memray_eval.benchmarks.needles.generator.resources import Resources
    from memray_eval.benchmarks.needles.generator.user_texts import read_haystack, read_questions
    from memray_eval.models.tokenizers import load_tokenizer

    plan = plan_of(tasks, languages, lengths, depths, samples, seed)
    parquet.check_writable(out, force)
    given = read_haystack(haystack) if haystack else ()
    questions = read_questions(documents) if documents else ()
    resources = Resources(load_tokenizer(tokenizer), seed, given, questions)

    def tell(task: str, language: str, length: int, by_parts: bool) -> None:
        slow = (
            ""
            if by_parts
            else " (this tokenizer joins words across lines: each sample is tokenised in full, "
            "slowly)"
        )
        say(f"{task} {language} {length_label(length)}{slow}")

    started = time.monotonic()
    made = islice(generate.samples(plan, resources, tell), limit)
    written = parquet.write(
        _report_progress(made, min(plan.n_samples, limit or plan.n_samples)), out
    )
    seconds, megabytes = time.monotonic() - started, written.context_bytes / 1e6
    show(
        f"{out}: {written.samples:,} samples, {megabytes:,.1f} MB of context, "
        f"{megabytes / seconds:,.1f} MB/s"
    )


def _report_progress(
    samples: Iterable[Sample], total: int, clock: Callable[[], float] = time.monotonic
) -> Iterator[Sample]:
    """Yields the same samples, and prints progress on stderr every PROGRESS_S seconds."""
    last_told = clock()
    for n, sample in enumerate(samples):
        if clock() - last_told >= PROGRESS_S:
            last_told = clock()
            say(f"  {n:,} of {total:,} samples")
        yield sample
