"""Options of commands: how one is declared, how commands share them, and the options of those that
run jobs, each declared once."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import typer
from typer.models import ParameterInfo

from memray_eval.config.loading import load_config
from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import NEXT_PAIR, ColumnSource
from memray_eval.config.servers import name_candidate
from memray_eval.errors import ConfigError

# The groups of a command's options that --help shows
WHAT, JUDGING, MONEY, OUTPUT = "What to run", "Judging", "Limits and money", "Output"


def option(
    help: str, panel: str | None = None, *names: str, default: Any = None, **settings: Any
) -> Any:
    """An option of a group, called as its parameter is unless `names` are given."""
    return typer.Option(default, *names, help=help, rich_help_panel=panel, **settings)


def flag(help: str, panel: str | None, *names: str) -> Any:
    """An option without a value."""
    return option(help, panel, *names, default=False)


def argument(help: str, default: Any = ...) -> Any:
    """An argument, which is required unless it has a default; --help does not show the default."""
    return typer.Argument(default, help=help, show_default=False)


class Options:
    """Base of frozen dataclasses whose fields are options; a field without a value has its option's
    default."""

    def __post_init__(self) -> None:
        for name, value in list(vars(self).items()):
            if isinstance(value, ParameterInfo):
                object.__setattr__(self, name, value.default)


def takes(names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a command of a function whose first parameter is an Options: `names` lists the fields
    that the command takes, and the function's other parameters, in the order of --help."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        first, *rest = inspect.signature(function, eval_str=True).parameters.values()
        own = {parameter.name: parameter for parameter in rest}
        parameters = dict(inspect.signature(first.annotation, eval_str=True).parameters) | own
        chosen = [
            parameters[name].replace(kind=inspect.Parameter.KEYWORD_ONLY) for name in names.split()
        ]

        @wraps(function)
        def command(**values: Any) -> None:
            others = {name: values.pop(name) for name in own}
            function(first.annotation(**values), **others)

        vars(command).update(__signature__=inspect.Signature(chosen))
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in chosen}
        return command

    return decorate


# Options that are keys of a job by their own names
_SAME_KEYS = "suite limit epochs dataset encoding include judge out name".split()
CONFIG = argument("A job's YAML file, or the name of a built-in job, such as quickstart.")
BASE_CONFIG = option("Take judging and cluster settings from this job's YAML file.", JUDGING)


@dataclass(frozen=True, kw_only=True)
class JobOptions(Options):
    """The options of the commands that run jobs. A command that takes one of them alone has it as a
    default: `as_json: bool = JobOptions.as_json`."""

    suite: str | None = option(
        "Suite to score the responses with, instead of the one that the job or the responses name "
        "(see `list suites`); FILE.py:NAME for your own.",
        WHAT,
    )
    limit: int | None = option(
        "Take N samples, stratified by task and scenario. Deterministic; a larger N is a superset.",
        WHAT,
        min=1,
    )
    dataset: str | None = option(
        "Use this dataset instead: a folder, or a .csv, .json, .jsonl or .parquet file.", WHAT
    )
    epochs: int | None = option(
        "Ask each candidate N times a sample, each with another seed.", WHAT, min=1
    )
    encoding: str | None = option(
        "Encoding of the dataset's text, such as cp1252 (default: UTF-8, or UTF-16 by its mark).",
        WHAT,
    )
    mapped: list[str] | None = option(
        "Read fields from columns of your data: --map query=question,answers=reference.",
        WHAT,
        "--map",
    )
    model: str | None = option(
        "Use this model for the first candidate: `embedded`, a Hugging Face name, a folder, "
        "ollama/MODEL, MODEL@URL of a server, or FILE.py:FUNCTION.",
        WHAT,
    )
    skip_invalid: bool = flag("Skip invalid samples, and report them.", WHAT, "--skip-invalid")
    affect: str | None = option("on or off: detect emotion and traits if samples have none.", WHAT)
    speech_weight: float | None = option(
        "Weight of the speech emotion in the fused distribution.", WHAT
    )
    text_weight: float | None = option(
        "Weight of the text emotion in the fused distribution.", WHAT
    )
    disable_openai_tts: bool = flag(
        "Disable OpenAI text-to-speech; the speech emotion is then uniform.",
        WHAT,
        "--disable-openai-tts",
    )
    settings: list[str] | None = option(
        "Set any key of the job: --set engine.replicas=2 --set "
        "candidates.0.sampling.temperature=0.7",
        WHAT,
        "--set",
    )
    metrics: str | None = option(
        "Compute only these metrics, comma-separated (see `list metrics`); "
        "FILE.py:NAME for your own, a function of a sample and a response (response.text).",
        JUDGING,
    )
    include: list[str] | None = option(
        "Load metrics from this file, so that they can be used by name. Repeatable.", JUDGING
    )
    judge: str | None = option(
        "Who scores judged metrics: rules, auto, embedded, PROVIDER/MODEL (`list providers`), "
        "MODEL@URL of a server, its URL alone, or FILE.py:FUNCTION.",
        JUDGING,
    )
    no_cache: bool = flag("Ignore cached verdicts, and cache none.", MONEY, "--no-cache")
    budget_usd: float | None = option(
        "Stop before judge calls cost more than this, in US dollars. The run can be resumed.",
        MONEY,
        min=0,
    )
    yes: bool = flag(
        "Start without a budget and without asking, whatever the estimate.", MONEY, "--yes"
    )
    detach: bool = flag(
        "Exit once judge calls are submitted in batches (judging.mode); `resume` continues.",
        MONEY,
        "--detach",
    )
    out: str | None = option("Write run folders here: a folder or a cloud URL.", OUTPUT)
    run_id: str | None = option(
        "Name of the run folder. If it already holds this run, the run is resumed.",
        OUTPUT,
        show_default=False,
    )
    name: str | None = option(
        "Title of the run, in lists and on its page.", OUTPUT, show_default=False
    )
    as_json: bool = flag("Print JSON on stdout instead of text.", OUTPUT, "--json")
    full: bool = flag("Print every figure of every metric, and all tables.", OUTPUT, "--full")

    def overrides(self) -> dict[str, Any]:
        """The keys of a job that they set; None leaves what the job says. Raises ConfigError."""
        if self.affect not in (None, "on", "off"):
            raise ConfigError(f"--affect {self.affect}: it is on or off")
        keys: dict[str, Any] = {name: getattr(self, name) for name in _SAME_KEYS} | {
            "skip_invalid": self.skip_invalid or None,
            "affect.enabled": None if self.affect is None else self.affect == "on",
            "affect.tts": "off" if self.disable_openai_tts else None,
            "affect.speech_weight": self.speech_weight,
            "affect.text_weight": self.text_weight,
            "metrics": split_names(self.metrics) if self.metrics else None,
            "judging.cache": "off" if self.no_cache else None,
            "budget.usd": self.budget_usd,
        }
        if self.model is not None:
            keys["candidates.0.model"] = self.model
            keys["candidates.0.name"] = name_candidate(self.model)
        return keys | column_overrides(self.mapped)

    def load_job(self, config: Path | None, changes: Mapping[str, Any] | None = None) -> RunConfig:
        """The job of a file, or of the options alone, with `changes` before --set. Raises
        ConfigError."""
        return load_config(config, self.overrides() | dict(changes or {}), self.settings or ())


def split_names(text: str | None) -> list[str]:
    """The names of a comma-separated list."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def column_overrides(mapped: list[str] | None) -> dict[str, str]:
    """--map options as config keys: FIELD=COLUMN, separated by commas. Raises ConfigError for one
    that is not FIELD=COLUMN."""
    overrides = {}
    for text in (pair for texts in mapped or () for pair in NEXT_PAIR.split(texts)):
        field, separator, column = text.partition("=")
        if not (field.strip() and separator and column.strip()):
            raise ConfigError(f"--map {text!r}: write FIELD=COLUMN, such as query=question")
        overrides[f"columns.{field.strip()}"] = column.strip()
    return overrides


def column_sources(mapped: list[str] | None) -> dict[str, ColumnSource]:
    """--map options by field. Raises ConfigError as `column_overrides` does."""
    return {
        key.removeprefix("columns."): ColumnSource({"from": column})
        for key, column in column_overrides(mapped).items()
    }


def named_number(text: str, option: str, form: str) -> tuple[str, float]:
    """NAME=NUMBER as a pair. Raises ConfigError that tells the form that an option has."""
    name, _, number = text.rpartition("=")
    try:
        return name, float(number)
    except ValueError:
        raise ConfigError(f"{option} {text}: write {form}") from None
