"""The commands about jobs' keys: schema, config show."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer
import yaml

from memray_eval.cli.app import DATA, app, show
from memray_eval.cli.options import CONFIG, JobOptions, flag
from memray_eval.config.loading import load_config, read_job_keys
from memray_eval.config.secrets import refuse_keys

config_app = typer.Typer(help="Show what a job's keys resolve to.", no_args_is_help=True)
app.add_typer(config_app, name="config", rich_help_panel=DATA)


@app.command(rich_help_panel=DATA, epilog="Example: memray-eval schema")
def schema(
    as_markdown: bool = flag("Print the page of all keys in Markdown instead.", None, "--markdown"),
) -> None:
    """Print the JSON schema of a job: every key with its description and default."""
    from memray_eval.config.reference import job_reference, job_schema

    if as_markdown:
        show(job_reference(), end="")
    else:
        show(json.dumps(job_schema(), indent=2, ensure_ascii=False))


@config_app.command("show", epilog="Example: memray-eval config show job.yaml")
def show_config(config: Path = CONFIG, settings: list[str] | None = JobOptions.settings) -> None:
    """Print a job as it would run, as YAML. A comment names the source of each value that is not
    the default."""
    job = load_config(config, {}, settings or ())
    refuse_keys(job, {})  # they are printed
    sources = dict.fromkeys(read_job_keys(config), config.name)
    sources |= {setting.partition("=")[0].strip(): "--set" for setting in settings or ()}
    for line in _to_lines(job.model_dump(mode="json"), "", sources):
        show(line)


def _to_lines(section: Mapping[str, Any], path: str, sources: Mapping[str, str]) -> Iterator[str]:
    """A section as YAML, a key a line."""
    margin = "  " * path.count(".")
    for name, value in section.items():
        key = f"{path}{name}"
        if isinstance(value, dict) and value:
            yield f"{margin}{_to_yaml(name)}:"
            yield from _to_lines(value, f"{key}.", sources)
            continue
        # What was set is the key itself, what holds it, or a part of a list
        origins = [
            source
            for set_key, source in sources.items()
            if f"{key}.".startswith(f"{set_key}.") or set_key.startswith(f"{key}.")
        ]
        source = f"    # {origins[-1]}" if origins else ""
        yield f"{margin}{_to_yaml(name)}: {_to_yaml(value)}{source}"


def _to_yaml(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")
