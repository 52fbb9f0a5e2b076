"""The page: a summary, the manifest's stages and the records' texts, laid into one template."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any, Protocol

import pyarrow.dataset as pads
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from memray_eval.errors import ConfigError
from memray_eval.report.decisions import decide, means_of
from memray_eval.report.decisions import lines as decision_lines
from memray_eval.report.html import figures
from memray_eval.report.html.plots import temperature_curves
from memray_eval.report.html.samples import embed
from memray_eval.report.html.spending import PERCENTILES, measure_spending
from memray_eval.storage import locate, write_whole
from memray_eval.types import Record, Summary

_SCRIPTS = ("marks.js", "records.js", "detail.js", "browser.js")


class Run(Protocol):
    """What a page is made of. A RunFolder is one."""

    @property
    def run_id(self) -> str: ...
    def read_summary(self) -> Summary: ...
    def read_manifest(self) -> dict[str, Any]: ...
    def records(self) -> pads.Dataset: ...
    def each(self) -> Iterator[Record]: ...


def write_html(folder: Run, path: str) -> None:
    """Writes the run's page to a path or cloud URL, whole or not at all. Raises DataError for a folder that is no finished run,
    and ConfigError for a place that cannot be written."""
    page = render_html(folder)
    filesystem, inner = locate(path)
    # A lone surrogate, which no UTF-8 can hold, becomes \udXXX: inside JSON that is its own escape.
    try:
        write_whole(filesystem, inner, page.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error}; name another place with --out") from None


def render_html(folder: Run) -> str:
    """The run's page. Every text of the run is escaped by the template, or travels as JSON and is set as text by the script;
    the page's own policy runs no other script and opens no connection."""
    summary, manifest = folder.read_summary(), folder.read_manifest()
    embedded = embed(folder.each(), {metric.metric: metric.scale for metric in summary.metrics})
    script = _script()
    return _environment().get_template("page.html").render(
        summary=summary,
        manifest=manifest,
        sections=_sections(summary, manifest),
        spending=measure_spending(folder.records()),
        percentiles=PERCENTILES,
        embedded=embedded,
        style=Markup(_asset("page.css")),
        script=Markup(script),
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )  # fmt: skip


def _sections(summary: Summary, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of the page that a run may or may not have."""
    decisions = decide(means_of(summary))
    return {
        "cards": list(figures.cards(summary)),
        "metrics": list(figures.metric_rows(summary)),
        "grids": [grid for grid in (figures.by_candidate(summary), *figures.by_task(summary)) if grid],
        "heat": list(figures.heat_grids(summary.heat_maps)),
        "tradeoff": figures.tradeoff(summary),
        "curves": list(temperature_curves(summary.sweeps)),
        "agreements": figures.agreements(summary),
        "juries": list(figures.juries(summary)),
        "stages": figures.stages(manifest),
        "decisions": list(decision_lines(decisions)) if decisions else [],
    }


@cache
def _environment() -> Environment:
    loader = PackageLoader("memray_eval.report.html", "templates")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(label=figures.label, number=figures.number, dollars=figures.dollars)
    return environment


def _script() -> str:
    parts = "\n".join(_asset(name) for name in _SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}\n}})();'


@cache
def _asset(name: str) -> str:
    return (resources.files("memray_eval.report.html") / "templates" / name).read_text("utf-8")
