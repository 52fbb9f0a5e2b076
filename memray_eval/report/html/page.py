"""Renders a run's page: a file embeds the records, a page that is served asks for them."""

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from memray_eval.analysis.marks import name_figure
from memray_eval.analysis.score_table import read_score_tables
from memray_eval.analysis.scores import Intervals, clustered_intervals
from memray_eval.analysis.where import Split, find_places, read_run_scores
from memray_eval.report.answer import answer, title
from memray_eval.report.decisions import decision_sections
from memray_eval.report.html import view_model
from memray_eval.report.html.samples import Embedded, embed
from memray_eval.report.html.view_model import (
    RunCost,
    doubts,
    draw_places,
    list_links,
    stages,
    tabulate_figures,
)
from memray_eval.report.html.why import Why, find_meanings, find_reasons
from memray_eval.report.sections import Section, figure, label, turn_sections, twin_sections
from memray_eval.report.tables import (
    FailedCalls,
    arm_sections,
    curve_sections,
    epoch_sections,
    generation_sections,
    heat_sections,
    served_sections,
)
from memray_eval.results.run_folder import RunFolder
from memray_eval.storage.paths import write_atomically
from memray_eval.types import Summary

_BEHAVIOUR = ("theme.js", "regions.js", "browser.js")


class ServedRun(NamedTuple):
    """A served run: its folder, its title without a summary, and its list, "" if in none."""

    path: str
    title: str
    home: str = ""


def write_html(folder: RunFolder, path: str) -> None:
    """Writes the run's page. Raises DataError without a summary, ConfigError for the place."""
    write_page(render_html(folder), path, "--out")


def render_html(folder: RunFolder) -> str:
    """Renders the run's page. Every text of the run is escaped by the template, or travels as JSON
    and is set as text by the script; its policy allows no other script and no connection."""
    summary = folder.read_summary()
    embedded = embed(folder.each(), {metric.metric: metric.scale for metric in summary.metrics})
    return render_run(folder, summary, folder.read_manifest(), embedded)


def render_run(
    folder: RunFolder,
    summary: Summary | None,
    manifest: Mapping[str, Any],
    embedded: Embedded,
    served: ServedRun | None = None,
) -> str:
    """Renders the page with the records that are embedded; one that is `served` asks the server for
    records, which its policy allows. Without a summary it has no figures yet."""
    shown = summary or Summary(
        run_id=folder.run_id, suite="", n_samples=0, n_invalid=0, n_units=0, n_failed_units=0,
        generation_s=None, evaluation_s=None, total_s=0.0, candidates=(), metrics=(),
    )  # fmt: skip
    source, live = ("served.js", ("standing.js", "live.js")) if served else ("embedded.js", ())
    cost, failed, intervals, splits, why = _read_records(folder, summary)
    names = tuple(dict.fromkeys(metric.metric for metric in shown.metrics))
    counts = Counter[str]()
    for metric in shown.metrics:
        counts.update(metric.judges)
    judges = [judge for judge, _ in counts.most_common()]
    meanings, places = find_meanings(manifest, names), draw_places(splits)
    return render_page(
        "page.html",
        ("marks.js", "judgment.js", source, "detail.js", *_BEHAVIOUR, *live),
        summary=shown,
        title=served.title if served and summary is None else title(shown),
        answer=answer(shown, splits),
        worst=shown.headline if any(metric.n_scored for metric in shown.metrics) else "",
        meanings=meanings,
        doubts=list(doubts(shown, meanings)),
        links=list(list_links(shown, places, why)),
        started=_format_start(manifest),
        judges="".join(judges[:1]) + f" and {len(judges) - 1} more" * (len(judges) > 1),
        is_unfinished=summary is None,
        is_served=served is not None,
        served=served,
        served_style=Markup(asset("served.css")) if served else "",
        manifest=manifest,
        sections={
            "figures": tabulate_figures(shown, intervals),
            "places": places,
            "why": why,
            "metrics": list(view_model.metric_rows(shown)),
            "grids": list(view_model.by_task(shown, intervals)),
            "n_by_task": view_model.count_task_figures(shown),
            "heat": list(heat_sections(shown.heat_maps)),
            "by_length": list(curve_sections(shown.heat_maps)),
            "length_curves": list(view_model.length_curves(shown)),
            "tradeoff": view_model.tradeoff(shown, intervals),
            "quality_mark": view_model.quality_mark(shown),
            "memory": list(arm_sections(shown.arms)),
            "memory_plot": view_model.arms_plot(shown),
            "curves": list(view_model.curves(shown, intervals)),
            "agreements": list(view_model.agreements(shown)),
            "generation": list(generation_sections(shown)),
            "cost": list(cost.tables()),
            "failed_calls": list(failed.sections()),
            "stages": stages(manifest),
            "intervals": intervals.in_words(),
            "text": [
                *turn_sections(shown.turns),
                *epoch_sections(shown),
                *served_sections(shown.served_models),
                *decision_sections(shown),
                *twin_sections(shown.twins),
            ],
        },
        embedded=embedded,
    )


def _read_records(
    folder: RunFolder, summary: Summary | None
) -> tuple[RunCost, FailedCalls, Intervals, list[Split], Why | None]:
    """Reads the records for paid calls and for scores; nothing of a run without a summary."""
    cost, failed = RunCost(), FailedCalls()
    if summary is None:
        return cost, failed, Intervals(), [], None
    records = folder.records()
    fields = list(dict.fromkeys((*cost.SCORES, *failed.SCORES)))
    for table in read_score_tables(records, (*cost.UNITS, *failed.UNITS), fields):
        cost.add(table)
        failed.add(table)
    scores = read_run_scores(records, summary)
    intervals = clustered_intervals(scores.of.items(), scores.cluster, summary)
    splits = find_places(scores, summary)
    return cost, failed, intervals, splits, find_reasons(records, scores, summary, splits)


def _format_start(manifest: Mapping[str, Any]) -> str:
    """When the run started, such as "24 November 2026, 08:00 UTC"; "" if the manifest has none."""
    try:
        started = datetime.fromisoformat(str(manifest.get("started")))
    except ValueError:
        return ""
    return f"{started.day} {started:%B %Y, %H:%M} UTC"


def render_page(template: str, scripts: tuple[str, ...], **values: Any) -> str:
    """Renders a template with its style and the named scripts, which its policy allows alone."""
    parts = "\n".join(map(asset, scripts))
    script = f'(() => {{\n"use strict";\n{parts}\n}})();'
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    own = {"style": Markup(asset("page.css")), "script": Markup(script), "script_digest": digest}
    return environment().get_template(template).render(**own, **values)


def render_fragment(sections: Iterable[Section]) -> str:
    """Renders sections as a piece of a page, such as a notebook's cell: escaped, no script."""
    module: Any = environment().get_template("parts.html").module
    return str(module.fragment(list(sections)))


def write_page(page: str, path: str, option: str) -> None:
    """Writes a page whole. Raises ConfigError, which names `option`, for an unwritable place."""
    with write_atomically(path, f"name another place with {option}") as file:
        # A lone surrogate, which no UTF-8 can hold, becomes \udXXX: inside JSON that is its own
        # escape.
        file.write(page.encode("utf-8", "backslashreplace"))


@cache
def environment() -> Environment:
    loader = PackageLoader("memray_eval.report.html", "templates")
    jinja = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    jinja.trim_blocks = jinja.lstrip_blocks = True
    filters = (label, view_model.heading, view_model.number, figure, name_figure)
    jinja.filters |= {function.__name__: function for function in filters}
    return jinja


@cache
def asset(name: str) -> str:
    return (resources.files("memray_eval.report.html") / "templates" / name).read_text("utf-8")
