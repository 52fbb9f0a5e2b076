"""Metrics against temperature and length: which candidates make a sweep, tables and plots."""

from itertools import product
from typing import Any

import pytest

from memray_eval.analysis.breakdown import temperature_sweeps
from memray_eval.report.html.view_model import length_curves
from memray_eval.report.tables import curve_sections, heat_sections, sweep_sections
from memray_eval.types import Candidate, HeatMap, LengthPoint, MetricSummary, Sampling
from tests.build import build_metric, build_summary


def candidate(
    name: str, temperature: float, model: str = "m", prompt: str = "default", **sampling: Any
) -> Candidate:
    decoding = Sampling(temperature=temperature, **sampling)
    return Candidate(name=name, model=model, prompt=prompt, sampling=decoding)


def metric(
    name: str, of: str, mean: float | None = 0.5, stderr: float | None = 0.01, n: int = 10
) -> MetricSummary:
    return build_metric(name, n, candidate=of, title=name, mean=mean, stderr=stderr)


HOT, COLD = candidate("hot", 1.0), candidate("cold", 0.0)


def test_a_sweep_goes_by_rising_temperature_with_its_error_bars() -> None:
    metrics = [metric("relevance", "hot", 0.4, 0.02, 8), metric("relevance", "cold", 0.6, None, 1)]
    (sweep,) = temperature_sweeps([HOT, COLD], metrics)
    assert (sweep.metric, sweep.model, sweep.prompt) == ("relevance", "m", "default")
    assert (sweep.candidates, sweep.temperatures) == (("cold", "hot"), (0.0, 1.0))
    assert (sweep.means, sweep.stderrs, sweep.n) == ((0.6, 0.4), (None, 0.02), (1, 8))


def test_every_metric_of_every_model_and_prompt_has_its_own() -> None:
    candidates = [
        candidate(f"{model}{prompt}{temperature}", temperature, model, prompt)
        for model, prompt, temperature in product(("m", "n"), ("a", "b"), (0.0, 0.5, 1.0))
    ]
    metrics = [metric(name, swept.name) for name in ("x", "y") for swept in candidates]
    sweeps = temperature_sweeps(candidates, metrics)
    of_sweeps = [(sweep.model, sweep.prompt, sweep.metric) for sweep in sweeps]
    assert of_sweeps == [*product(("m", "n"), ("a", "b"), ("x", "y"))]
    assert {sweep.temperatures for sweep in sweeps} == {(0.0, 0.5, 1.0)}


NO_SWEEP: dict[str, tuple[Candidate | None, tuple[str, ...]]] = {
    "another model": (candidate("o", 1.0, "n"), ("cold", "o")),
    "another prompt": (candidate("o", 1.0, prompt="b"), ("cold", "o")),
    "another sampling": (candidate("o", 1.0, top_p=0.9), ("cold", "o")),
    "the same temperature": (candidate("o", 0.0), ("cold", "o")),
    "one candidate": (None, ("cold",)),
    "no record of one": (HOT, ("hot",)),
    "no record": (HOT, ()),
}


@pytest.mark.parametrize("why", NO_SWEEP)
def test_what_does_not_differ_in_temperature_alone_is_no_sweep(why: str) -> None:
    other, scored = NO_SWEEP[why]
    swept = [COLD] if other is None else [other, COLD]
    assert temperature_sweeps(swept, [metric("x", name) for name in scored]) == ()


def test_more_temperatures_than_fit_go_on_below() -> None:
    candidates = [candidate(f"c{step}", step / 10) for step in range(9)]
    metrics = [metric("relevance", swept.name) for swept in candidates]
    (section,) = sweep_sections(temperature_sweeps(candidates, metrics))
    lines = list(section.lines())
    heads = [line.split()[1:] for line in lines if line.startswith("temperature")]
    assert heads == [["0", "0.1", "0.2", "0.3"], ["0.4", "0.5", "0.6", "0.7"], ["0.8"]]
    assert max(map(len, lines)) <= 80


CURVE = HeatMap(
    candidate="c", metric="memory_conduct", scale=(0, 1), lengths=(10, 4000), depths=(), values=(),
    n=(), without_depth=(0.5, None), n_without_depth=(4, 0), measure="entries",
    points=(
        LengthPoint(length=10, mean=0.5, n=4, low=0.15, high=0.85, prompt_tokens=900, cost_usd=0.5),
        LengthPoint(length=4000, prompt_tokens=80_000.4),
    ),
)  # fmt: skip


def test_figures_over_length_are_a_table_and_a_plot() -> None:
    judged = CURVE.model_copy(update={"metric": "helpfulness", "scale": (1, 5), "estimates": 4})
    (section,) = curve_sections([CURVE, judged])
    assert section.title == "BY ENTRIES OF MEMORY - c"
    rows = [line.split() for line in section.lines() if line and line[0].isdigit()]
    ends = ["0.500", "[0.150,", "0.850]", "0.50", "[0.15,", "0.85]"]
    assert rows == [["10", "4", "900", "1.0000", *ends], ["4,000", "0", "80,000", "-", "-", "-"]]
    assert list(heat_sections([CURVE])) == []
    summary = build_summary(heat_maps=(CURVE, judged))
    drawn = list(length_curves(summary))
    expected = [("memory_conduct", ["c, n 0 to 4"]), ("helpfulness", ["c, n 0 to 4, estimate"])]
    assert [(metric, names) for metric, _, names in drawn] == expected
    assert "memory_conduct against entries of memory" in drawn[0][1]
    assert ">4,000<" in drawn[0][1]


@pytest.mark.parametrize(
    "changed", [{"points": ()}, {"depths": (0.0,), "values": ((0.5, 0.5),), "n": ((2, 2),)}]
)
def test_a_map_with_depths_or_of_an_older_run_is_no_curve(changed: dict[str, Any]) -> None:
    heat = CURVE.model_copy(update=changed)
    assert list(curve_sections([heat])) == []
    assert len(list(heat_sections([heat]))) == 1
