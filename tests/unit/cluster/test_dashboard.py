"""The Grafana dashboard: a whole one, that reads only what is exported, with labels that it has."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest

from memray_eval.execution.exported_metrics import ENGINE_SERIES, RUN, SERIES, Series
from tests.conftest import REPOSITORY
from tests.unit.cluster.prometheus import Read, reads

DASHBOARD = json.loads((REPOSITORY / "cluster" / "grafana" / "memray_eval.json").read_text("utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
ALL = (*SERIES, *ENGINE_SERIES)
ENDS = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def exported(series: Series) -> set[str]:
    """Its names in Prometheus."""
    return {f"ray_{series.name}{end}" for end in ENDS[series.kind]}


OURS = {
    name: {*series.tags, RUN} | ({"le"} if name.endswith("_bucket") else set())
    for series in ALL
    for name in exported(series)
}
# Ray/dashboard/.../reporter_agent.py
RAYS = {"ray_cluster_active_nodes": set[str](), "ray_node_gpus_utilization": {"instance"}}
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]
COUNTERS = {name for series in ALL if series.kind == "counter" for name in exported(series)}


def strangers(expression: str) -> list[str]:
    """The metrics and labels of an expression that nothing exports."""
    exports = OURS | RAYS
    metrics = reads(expression)
    names = [metric.name for metric in metrics if metric.name not in exports]
    return names + [
        f"{metric.name}{{{label}}}"
        for metric in metrics
        if metric.name in exports
        for label in metric.labels - exports[metric.name]
    ]


def test_it_reads_only_what_is_exported() -> None:
    assert {
        expression: strangers(expression) for expression in EXPRESSIONS if strangers(expression)
    } == {}


def test_every_metric_of_ours_has_a_panel() -> None:
    shown = {metric.name for expression in EXPRESSIONS for metric in reads(expression)}
    assert [series.name for series in ALL if not shown & exported(series)] == []


def test_a_counter_over_time_is_read_by_its_rate() -> None:
    """A single figure may show a counter as it stands; a curve of one says nothing after a
    restart."""
    for panel in PANELS:
        for target in panel["targets"]:
            if panel["type"] == "timeseries" and COUNTERS & {
                metric.name for metric in reads(target["expr"])
            }:
                assert "rate(" in target["expr"], panel["title"]


def test_legends_use_labels_that_the_expression_keeps() -> None:
    for target in (target for panel in PANELS for target in panel["targets"]):
        kept = {label for metric in reads(target["expr"]) for label in metric.labels}
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= kept


def test_panels_are_whole_and_apart() -> None:
    ids = [panel["id"] for panel in PANELS]
    assert len(set(ids)) == len(ids)
    for panel in PANELS:
        assert panel["title"]
        assert panel["description"]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs) > 0
        assert panel["datasource"]["uid"] == "${datasource}"
    assert not [
        (a["title"], b["title"])
        for a, b in itertools.combinations(PANELS, 2)
        if overlap(a["gridPos"], b["gridPos"])
    ]


def test_every_variable_is_declared() -> None:
    declared = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD))) - {"__rate_interval"}
    assert used == declared


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("sum(ray_memray_units_total", "not closed"),
        ("sum(ray_memray_units_total))", "closes nothing"),
        ("sum(up)", "reads no metric"),
    ],
)
def test_a_broken_expression_is_refused(expression: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        reads(expression)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("sum(ray_memray_unit_total)", ["ray_memray_unit_total"]),
        ('sum by (stage) (ray_memray_units_total{judge="x"})', ["ray_memray_units_total{judge}"]),
        ("sum by (model) (ray_memray_queue)", ["ray_memray_queue{model}"]),
    ],
)
def test_a_metric_or_label_that_nothing_exports_is_found(
    expression: str, expected: list[str]
) -> None:
    assert strangers(expression) == expected


def test_labels_of_selectors_and_groups_are_read() -> None:
    assert reads(
        'sum by (stage) (rate(ray_memray_units_total{run_id=~"$run", '
        'outcome!="}"}[$__rate_interval]))'
    ) == [Read(name="ray_memray_units_total", labels=frozenset({"stage", "run_id", "outcome"}))]


def overlap(first: dict[str, int], second: dict[str, int]) -> bool:
    beside = first["x"] + first["w"] <= second["x"] or second["x"] + second["w"] <= first["x"]
    below = first["y"] + first["h"] <= second["y"] or second["y"] + second["h"] <= first["y"]
    return not (beside or below)
