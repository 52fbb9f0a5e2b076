"""The commands that make datasets: dataset make needles, mrcr, graphwalks, babilong, nolima."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from memray_eval.cli.app import dataset_app, say, show
from memray_eval.types import Sample

if TYPE_CHECKING:
    from memray_eval.benchmarks.generator.plan import TaskSet

PROGRESS_S = 5.0

make_app = typer.Typer(no_args_is_help=True, help="Generate datasets.")
dataset_app.add_typer(make_app, name="make")

Out: TypeAlias = Annotated[
    str, typer.Option(help="The .parquet file to write.", show_default=False)
]
Lengths: TypeAlias = Annotated[
    str, typer.Option(help="Tokens, comma-separated: 4k,32k,128k,1M (k = 1024).")
]
Samples: TypeAlias = Annotated[
    int, typer.Option(help="Samples of each task and length, and depth where it has one.")
]
Tasks: TypeAlias = Annotated[
    str, typer.Option(help="Comma-separated, or `all`; a wrong name lists them.")
]
Seed: TypeAlias = Annotated[int, typer.Option(help="Another seed, other samples.")]
TokenizerName: TypeAlias = Annotated[
    str, typer.Option(help="Whose tokens count: `embedded`, a hub name, a folder.")
]
Haystack: TypeAlias = Annotated[
    str | None, typer.Option(help="A text of yours instead of generated prose.")
]
Limit: TypeAlias = Annotated[int | None, typer.Option(min=1, help="Only the first N samples.")]
Force: TypeAlias = Annotated[
    bool, typer.Option("--force", help="Overwrite the file if it is there.")
]


@make_app.callback()
def make() -> None:
    """Generate datasets."""


@make_app.command("needles")
def make_needles(
    out: Out,
    lengths: Lengths = "4k",
    depths: Annotated[
        int, typer.Option(help="Depths of the needle, in even steps from 0 to 100 percent.")
    ] = 11,
    samples: Samples = 1,
    tasks: Tasks = "all",
    languages: Annotated[str, typer.Option(help="en, zh, or both, comma-separated.")] = "en",
    seed: Seed = 0,
    tokenizer: TokenizerName = "embedded",
    haystack: Haystack = None,
    documents: Annotated[
        str | None,
        typer.Option(
            help="A .jsonl of {question, answers, gold, documents} for qa, instead of generated "
            "ones."
        ),
    ] = None,
    limit: Limit = None,
    force: Force = False,
) -> None:
    """Generate needle tasks (InfiniteBench's and RULER's kinds) of exact length by a model's own
    tokenizer.

    The length is that of the context, an empty line and the question; a chat template's tokens come
    on top."""
    from memray_eval.benchmarks.needles.generator.tasks import NEEDLES

    _make_tasks(
        NEEDLES,
        out=out,
        plan=(tasks, languages, lengths, depths, samples, seed),
        tokenizer=tokenizer,
        haystack=haystack,
        documents=documents,
        limit=limit,
        force=force,
    )


@make_app.command("mrcr")
def make_mrcr(
    out: Out,
    lengths: Lengths = "8k",
    samples: Samples = 8,
    tasks: Tasks = "all",
    seed: Seed = 0,
    tokenizer: TokenizerName = "embedded",
    limit: Limit = None,
    force: Force = False,
) -> None:
    """Generate conversations in which one request is made 2, 4 or 8 times, with texts of our own.

    The length is that of all messages, each counted by itself; a chat template's tokens come on
    top."""
    from memray_eval.benchmarks.mrcr.generator import MRCR

    plan = (tasks, "en", lengths, 1, samples, seed)
    _make_tasks(MRCR, out=out, plan=plan, tokenizer=tokenizer, limit=limit, force=force)


@make_app.command("graphwalks")
def make_graphwalks(
    out: Out,
    lengths: Lengths = "8k",
    samples: Samples = 10,
    tasks: Tasks = "all",
    seed: Seed = 0,
    tokenizer: TokenizerName = "embedded",
    limit: Limit = None,
    force: Force = False,
) -> None:
    """Generate random graphs as lists of edges, with questions for parents and for distances.

    The length is that of the edges, an empty line and the question; a chat template's tokens come
    on top."""
    from memray_eval.benchmarks.graphwalks.generator import GRAPHWALKS

    plan = (tasks, "en", lengths, 1, samples, seed)
    _make_tasks(GRAPHWALKS, out=out, plan=plan, tokenizer=tokenizer, limit=limit, force=force)


@make_app.command("babilong")
def make_babilong(
    out: Out,
    lengths: Lengths = "8k",
    samples: Samples = 10,
    tasks: Tasks = "all",
    seed: Seed = 0,
    tokenizer: TokenizerName = "embedded",
    haystack: Haystack = None,
    limit: Limit = None,
    force: Force = False,
) -> None:
    """Generate little stories of our own (bAbI's first ten kinds), scattered over a long text.

    The length is that of the text, an empty line and the question; the words in which the suite
    asks come on top."""
    from memray_eval.benchmarks.babilong.generator import BABILONG

    _make_tasks(
        BABILONG,
        out=out,
        plan=(tasks, "en", lengths, 1, samples, seed),
        tokenizer=tokenizer,
        haystack=haystack,
        limit=limit,
        force=force,
    )


@make_app.command("nolima")
def make_nolima(
    out: Out,
    needles: Annotated[
        str, typer.Option(help="A needle set of NoLiMa's (.json).", show_default=False)
    ],
    books: Annotated[
        str, typer.Option(help="Its books: a .txt file, or a folder of them.", show_default=False)
    ],
    lengths: Lengths = "1k",
    depths: Annotated[
        int, typer.Option(help="Depths of the needle, in even steps from 0 to 100 percent.")
    ] = 26,
    seed: Seed = 0,
    tokenizer: TokenizerName = "embedded",
    limit: Limit = None,
    force: Force = False,
) -> None:
    """Put the needles of your copy of NoLiMa into its books. Its licence is non-commercial: none of
    it comes with this package.

    The length is that of the passage with the needle, an empty line and the question, to within the
    tokens of a word; the words in which the suite asks come on top."""
    from memray_eval.benchmarks.generator import parquet
    from memray_eval.benchmarks.generator.plan import even_depths, lengths_of
    from memray_eval.benchmarks.generator.token_counter import TokenCounter
    from memray_eval.benchmarks.nolima.generator import read_books, read_needle_set, samples
    from memray_eval.models.tokenizers import load_tokenizer

    asked, percents = lengths_of(lengths), even_depths(depths)
    parquet.check_writable(out, force)
    questions, texts = read_needle_set(needles), read_books(books)
    counter = TokenCounter(load_tokenizer(tokenizer))
    n_samples = len(questions) * len(texts) * len(asked) * len(percents)
    _write(
        partial(samples, questions, texts, asked, percents, counter, seed), n_samples, limit, out
    )


def _make_tasks(
    task_set: TaskSet,
    *,
    out: str,
    plan: tuple[str, str, str, int, int, int],
    tokenizer: str,
    haystack: str | None = None,
    documents: str | None = None,
    limit: int | None,
    force: bool,
) -> None:
    """Makes the samples that `plan` (tasks, languages, lengths, depths, samples, seed) asks for."""
    from memray_eval.benchmarks.generator import generate, parquet
    from memray_eval.benchmarks.generator.plan import plan_of
    from memray_eval.benchmarks.generator.question_order import length_label
    from memray_eval.benchmarks.generator.resources import Resources, read_haystack, read_questions
    from memray_eval.models.tokenizers import load_tokenizer

    asked = plan_of(task_set, *plan)
    parquet.check_writable(out, force)
    given = read_haystack(haystack) if haystack else ()
    questions = read_questions(documents) if documents else ()
    resources = Resources(load_tokenizer(tokenizer), asked.seed, given, questions)

    def tell(task: str, language: str, length: int, by_parts: bool) -> None:
        slow = (
            ""
            if by_parts
            else " (this tokenizer joins words across lines: each sample is tokenised in full, "
            "slowly)"
        )
        say(f"{task} {language} {length_label(length)}{slow}")

    _write(partial(generate.samples, asked, resources, tell), asked.n_samples, limit, out)


def _write(
    make: Callable[[], Iterable[Sample]], n_samples: int, limit: int | None, out: str
) -> None:
    """Makes and writes the first samples, of so many, and says how fast."""
    from memray_eval.benchmarks.generator import parquet

    started = time.monotonic()
    total = min(n_samples, limit or n_samples)
    written = parquet.write(_report_progress(islice(make(), limit), total), out)
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
