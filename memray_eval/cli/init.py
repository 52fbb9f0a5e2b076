"""The command that begins: init."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from textwrap import indent

import yaml

from memray_eval.cli.app import RUN, app, say
from memray_eval.cli.options import JobOptions, argument, column_sources, option
from memray_eval.config.sections import ColumnSource
from memray_eval.errors import ConfigError, DataError, reason_of

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
