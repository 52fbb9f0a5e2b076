"""The commands that begin: demo, on answers and verdicts that are shipped, and init."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from textwrap import indent

import yaml

from memray_eval.cli.app import BEGAN, RUN, app, say, shorten_path, show
from memray_eval.cli.options import JobOptions, argument, column_sources, option
from memray_eval.config.loading import load_config, shipped_jobs
from memray_eval.config.sections import ColumnSource
from memray_eval.errors import ConfigError, DataError, reason_of
from memray_eval.types import Record

JOB = """\
# {name}: scores responses that exist already. All keys: jobs/README.md of memray_eval.
suite: chat                    # what is asked; `memray-eval list suites` shows the others
dataset: {dataset}
{columns}
candidates:                    # the dataset has the responses; in its place a model of yours:
  - {{name: given, model: given, backend: given}}
  # - {{name: mine, model: my-model, backend: openai, base_url: "http://localhost:8000/v1"}}
metrics:
  - my_metrics.py:brief
  # - my_metrics.py:tone       # wants a judge
  - readability_score          # `memray-eval list metrics` shows what is built in
judge: rules                   # asks nobody; or auto, openai/gpt-4o, anthropic/claude-opus-4-5
# budget: {{usd: 5}}             # stops the run before it would cost more
"""

METRICS = '''\
"""Metrics of one's own: by a function, and by a rubric that a judge scores."""

from memray_eval import computed_metric, judge_metric


def is_brief(sample, response):
    """Whether the response has at most 60 words: a bool, or a number of 0 to 1."""
    return len(response.text.split()) <= 60


brief = computed_metric(is_brief, name="brief")

# Without a judge (`judge: rules`) it is not applicable
tone = judge_metric(
    "tone",
    rubric="How warm is the response? 1: cold or rude. 3: neutral. 5: warm and kind.",
    scale=(1, 5),
    sees=["query", "response"],
)
'''

TEST = '''\
"""A gate for CI: `pytest {name}`."""

from pathlib import Path

import memray_eval as me


def test_responses_are_good_enough(tmp_path):
    job = Path(__file__).parent / "job.yaml"
    done = me.run(job, out=str(tmp_path), quiet=True)
    done.check("brief >= 0.5", "readability_score >= 0.5")
'''

DATA = """\
question,answer
How do I sleep better?,"Go to bed at the same time each day, and keep the room dark and cool."
Can I run with a cold?,"With a light one, a short and slow run is fine. With a fever, rest."
What did I tell you about coffee?,"You told me that you stopped drinking it after noon."
"""


@app.command(rich_help_panel=RUN, epilog="Example: memray-eval demo")
def demo(out: str | None = JobOptions.out) -> None:
    """See what a run tells you, in seconds: two assistants, 40 questions, no model and no key.

    The answers and a judge's verdicts come with the package; both were written for this project.
    All else is computed as in any run: scores, intervals, the comparison and the page."""
    from memray_eval.execution.runs import run
    from memray_eval.report.console import opening_parts
    from memray_eval.report.html.page import write_html
    from memray_eval.report.sections import lines_of

    job = load_config(shipped_jobs()["demo"], {"out": out})
    done = run(job, lambda line: None, quiet=True, started=next(iter(BEGAN), None))
    page = f"{done.folder.path}/report.html"
    write_html(done.folder, page)
    show(
        "Do two assistants use what they know of their user, and keep what others must not hear?\n"
        "40 questions of the memory benchmark. The answers and a judge's verdicts were written\n"
        "for this demo; the figures below were computed from them just now.\n"
    )
    show("\n".join([*lines_of(opening_parts(done.summary)), "", *_leaks(done.folder.each())]))
    show(
        f"\n{done.summary.total_s:.1f} s in all. What to do next:\n"
        f"  every answer, on one page:  open {shorten_path(page)}\n"
        "  chats of your own:          memray-eval evaluate chats.jsonl --judge auto\n"
        "  a model of your own:        memray-eval run memory --model MODEL --judge auto"
    )


def _leaks(records: Iterable[Record]) -> Iterator[str]:
    """Yields per assistant how many answers use what they must not, by task, and a quote."""
    leaks: dict[str, list[tuple[Record, str]]] = {}
    for record in records:
        answers = leaks.setdefault(record.candidate.name, [])
        score = next(score for score in record.scores if score.metric == "memory_utilization")
        evidence = json.loads(score.judgment or "{}").get("evidence", ())
        quotes = {piece["key"]: piece["quote"] for piece in evidence}
        used = (quotes[key] for key in record.sample.forbidden_keys if key in quotes)
        answers.append((record, next(used, "")))
    for candidate, answers in leaks.items():
        revealing = [(record, quote) for record, quote in answers if quote]
        tasks = Counter(record.sample.task for record, _ in revealing).most_common()
        where = f"{len(answers)} answers: " + ", ".join(f"{n} in {task}" for task, n in tasks)
        yield f"{candidate} reveals what it must not in {len(revealing)} of {where}"
        yield from (f'  "{quote}" ({record.sample.id})' for record, quote in revealing[-1:])


@app.command(rich_help_panel=RUN, epilog="Example: memray-eval init mine --from answers.csv")
def init(
    name: str = argument("The folder to create."),
    source: Path | None = option(
        "A .csv, .jsonl or .parquet of responses to score, instead of three examples.",
        None,
        "--from",
    ),
    mapped: list[str] | None = JobOptions.mapped,
) -> None:
    """Create a folder with a job, two custom metrics and a test, ready to run and edit."""
    folder = Path(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{name} is there already; name another folder")
    columns = "# columns: {query: question, response: answer}    # guessed where left out"
    dataset = "data.csv"
    if source is not None:
        columns = _columns_of(source, column_sources(mapped))
        dataset = Path(os.path.relpath(source.resolve(), folder.resolve())).as_posix()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        texts = {
            "job.yaml": JOB.format(name=folder.name, dataset=dataset, columns=columns),
            "my_metrics.py": METRICS,
            "test_quality.py": TEST.format(name=name),
        }
        if source is None:
            texts["data.csv"] = DATA
        for file, text in texts.items():
            (folder / file).write_text(text, "utf-8")
    except OSError as error:
        raise ConfigError(f"{name} cannot be written: {reason_of(error)}") from None
    say(f"Made {', '.join(str(folder / file) for file in texts)}. Next:")
    say(f"  memray-eval run {folder / 'job.yaml'}")
    say(
        f"  memray-eval run {folder / 'job.yaml'} --judge auto --metrics "
        f"{folder / 'my_metrics.py'}      # with a provider's key set"
    )


def _columns_of(source: Path, by_user: Mapping[str, ColumnSource]) -> str:
    """The job's `columns:` for a file's columns, as the user maps them, else by their names.
    Raises DataError if there is no file, or if its query or response is not found."""
    from memray_eval.datasets.columns import find_columns

    if not source.exists():
        raise DataError(f"no file {source}")
    columns = find_columns(str(source), by_user, has_responses=True, may_guess=True)
    named = {field: source["from"] for field, source in by_user.items()} | dict(columns.guessed)
    if not named:
        return "# columns: {FIELD: COLUMN}    # the file's columns are named as our fields are"
    mapped = yaml.safe_dump(named, allow_unicode=True, sort_keys=False)
    guessed = "       # guessed by their names" if columns.guessed else ""
    return f"columns:{guessed}\n{indent(mapped, '  ').rstrip()}"
