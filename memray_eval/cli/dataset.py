"""The commands that make datasets: dataset make needles, mrcr, graphwalks, babilong, nolima."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import typer

from memray_eval.cli.app import dataset_app, say, show
from memray_eval.cli.options import Options, flag, option, takes
from memray_eval.types import Sample

if TYPE_CHECKING:
    from memray_eval.benchmarks.generator.plan import TaskSet

PROGRESS_S = 5.0

make_app = typer.Typer(no_args_is_help=True, help="Generate datasets.")
dataset_app.add_typer(make_app, name="make")


@dataclass(frozen=True, kw_only=True)
class MakeOptions(Options):
    """What to generate, and how much of it."""

    out: str = option("The .parquet file to write.", default=..., show_default=False)
    needles: str = option("A needle set of NoLiMa's (.json).", default=..., show_default=False)
    books: str = option(
        "Its books: a .txt file, or a folder of them.", default=..., show_default=False
    )
    lengths: str = option("Tokens, comma-separated: 4k,32k,128k,1M (k = 1024).", default="8k")
    depths: int = option("Depths of the needle, in even steps from 0 to 100 percent.", default=1)
    samples: int = option(
        "Samples of each task and length, and depth where it has one.", default=10
    )
    tasks: str = option("Comma-separated, or `all`; a wrong name lists them.", default="all")
    languages: str = option("en, zh, or both, comma-separated.", default="en")
    seed: int = option("Random seed.", default=0)
    tokenizer: str = option(
        "Whose tokens count: `embedded`, a hub name, a folder.", default="embedded"
    )
    haystack: str | None = option("A text of yours instead of generated prose.")
    documents: str | None = option(
        "A .jsonl of {question, answers, gold, documents} for qa, instead of generated ones."
    )
    limit: int | None = option("Only the first N samples.", min=1)
    force: bool = flag("Overwrite the file if it is there.", None, "--force")


@make_app.callback()
def make() -> None:
    """Generate datasets."""


@make_app.command("needles")
@takes(
    "out lengths depths samples tasks languages seed tokenizer haystack documents limit force",
    lengths="4k",
    depths=11,
    samples=1,
)
def make_needles(options: MakeOptions) -> None:
    """Generate needle tasks (InfiniteBench's and RULER's kinds) of exact length by a model's own
    tokenizer.

    The length is that of the context, an empty line and the question; a chat template's tokens come
    on top."""
    from memray_eval.benchmarks.needles.generator.tasks import NEEDLES

    _make_tasks(NEEDLES, options)


@make_app.command("mrcr")
@takes("out lengths samples tasks seed tokenizer limit force", samples=8)
def make_mrcr(options: MakeOptions) -> None:
    """Generate conversations in which one request is made 2, 4 or 8 times, with texts of our own.

    The length is that of all messages, each counted by itself; a chat template's tokens come on
    top."""
    from memray_eval.benchmarks.mrcr.generator import MRCR

    _make_tasks(MRCR, options)


@make_app.command("graphwalks")
@takes("out lengths samples tasks seed tokenizer limit force")
def make_graphwalks(options: MakeOptions) -> None:
    """Generate random graphs as lists of edges, with questions for parents and for distances.

    The length is that of the edges, an empty line and the question; a chat template's tokens come
    on top."""
    from memray_eval.benchmarks.graphwalks.generator import GRAPHWALKS

    _make_tasks(GRAPHWALKS, options)


@make_app.command("babilong")
@takes("out lengths samples tasks seed tokenizer haystack limit force")
def make_babilong(options: MakeOptions) -> None:
    """Generate little stories of our own (bAbI's first ten kinds), scattered over a long text.

    The length is that of the text, an empty line and the question; the words in which the suite
    asks come on top."""
    from memray_eval.benchmarks.babilong.generator import BABILONG

    _make_tasks(BABILONG, options)


@make_app.command("nolima")
@takes("out needles books lengths depths seed tokenizer limit force", lengths="1k", depths=26)
def make_nolima(options: MakeOptions) -> None:
    """Put the needles of your copy of NoLiMa into its books. Its licence is non-commercial: none of
    it comes with this package.

    The length is that of the passage with the needle, an empty line and the question, to within the
    tokens of a word; the words in which the suite asks come on top."""
    from memray_eval.benchmarks.generator import parquet
    from memray_eval.benchmarks.generator.plan import even_depths, lengths_of
    from memray_eval.benchmarks.generator.token_counter import TokenCounter
    from memray_eval.benchmarks.nolima.generator import read_books, read_needle_set, samples
    from memray_eval.models.tokenizers import load_tokenizer

    lengths, depths = lengths_of(options.lengths), even_depths(options.depths)
    parquet.check_writable(options.out, options.force)
    questions, books = read_needle_set(options.needles), read_books(options.books)
    counter = TokenCounter(load_tokenizer(options.tokenizer))
    n_samples = len(questions) * len(books) * len(lengths) * len(depths)
    make = partial(samples, questions, books, lengths, depths, counter, options.seed)
    _write(make, n_samples, options)


def _make_tasks(task_set: TaskSet, options: MakeOptions) -> None:
    """Makes the samples of a benchmark's tasks that the options name."""
    from memray_eval.benchmarks.generator import generate, parquet
    from memray_eval.benchmarks.generator.plan import plan_of
    from memray_eval.benchmarks.generator.question_order import length_label
    from memray_eval.benchmarks.generator.resources import Resources, read_haystack, read_questions
    from memray_eval.models.tokenizers import load_tokenizer

    plan = plan_of(
        task_set,
        options.tasks,
        options.languages,
        options.lengths,
        options.depths,
        options.samples,
        options.seed,
    )
    parquet.check_writable(options.out, options.force)
    haystack = read_haystack(options.haystack) if options.haystack else ()
    questions = read_questions(options.documents) if options.documents else ()
    resources = Resources(load_tokenizer(options.tokenizer), plan.seed, haystack, questions)

    def report(task: str, language: str, length: int, by_parts: bool) -> None:
        slow = (
            ""
            if by_parts
            else " (this tokenizer joins words across lines: each sample is tokenised in full, "
            "slowly)"
        )
        say(f"{task} {language} {length_label(length)}{slow}")

    _write(partial(generate.samples, plan, resources, report), plan.n_samples, options)


def _write(make: Callable[[], Iterable[Sample]], n_samples: int, options: MakeOptions) -> None:
    """Makes and writes the first of the samples, and prints how fast."""
    from memray_eval.benchmarks.generator import parquet

    started = time.monotonic()
    total = min(n_samples, options.limit or n_samples)
    samples = _report_progress(islice(make(), options.limit), total)
    written = parquet.write(samples, options.out)
    seconds, megabytes = time.monotonic() - started, written.context_bytes / 1e6
    show(
        f"{options.out}: {written.samples:,} samples, {megabytes:,.1f} MB of context, "
        f"{megabytes / seconds:,.1f} MB/s"
    )


def _report_progress(
    samples: Iterable[Sample], total: int, clock: Callable[[], float] = time.monotonic
) -> Iterator[Sample]:
    """Yields the same samples, and prints progress on stderr every PROGRESS_S seconds."""
    last_printed = clock()
    for n, sample in enumerate(samples):
        if clock() - last_printed >= PROGRESS_S:
            last_printed = clock()
            say(f"  {n:,} of {total:,} samples")
        yield sample
