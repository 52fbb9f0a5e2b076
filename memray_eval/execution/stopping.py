"""Decides, as results come in, whether a run's question is answered: a metric's mean known closely
enough, or which of two candidates is better."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memray_eval.analysis.betting import DifferenceBets
from memray_eval.analysis.confidence_sequence import ConfidenceSequence
from memray_eval.analysis.score_table import ScoreTable
from memray_eval.datasets.ordering import SampleOrder
from memray_eval.errors import ConfigError
from memray_eval.ports import FloatArray
from memray_eval.types import EarlyDecision, Frozen

LEVEL = 0.95  # for all looks and all candidates together
_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_WIDTH = re.compile(rf"\s*([A-Za-z_]\w*)\s*(?:±|\+-|\+/-)\s*({_NUMBER})\s*")
_COMPARE = re.compile(r"\s*compare\s+([A-Za-z_]\w*)\s*")


class StopRule(Frozen):
    """The rule that decides a run: the mean of `metric` within ± `width` (on its scale) for each
    candidate or, without a width, which of two candidates has the higher one."""

    text: str
    metric: str
    width: float | None = None

    @property
    def kind(self) -> Literal["width", "compare"]:
        return "compare" if self.width is None else "width"


def parse_stop_rule(text: str) -> StopRule:
    """Parses "helpfulness ±0.1" and "compare empathy". Raises ConfigError for anything else."""
    if match := _WIDTH.fullmatch(text):
        if (width := float(match[2])) > 0:
            return StopRule(text=text.strip(), metric=match[1], width=width)
    elif match := _COMPARE.fullmatch(text):
        return StopRule(text=text.strip(), metric=match[1])
    raise ConfigError(
        f'stop_at: cannot read {text!r}; write "METRIC ±NUMBER" (or +-NUMBER) with a number above '
        '0 on the metric\'s scale, such as "helpfulness ±0.1", or "compare METRIC", of two '
        "candidates"
    )


@dataclass(frozen=True)
class StopWatch:
    """What a run is watched by: its rule, the metric's scale, the candidates, the order."""

    rule: StopRule
    scale: tuple[float, float]
    candidates: tuple[str, ...]
    order: SampleOrder


class ScoredUnits(Frozen):
    """Finished units, and their values of one metric: None if it has none."""

    sample_ids: tuple[str, ...]
    candidates: tuple[str, ...]
    values: tuple[float | None, ...]


def scored_units(records: pa.Table, metric: str) -> ScoredUnits:
    """The units of a block of records."""
    table = ScoreTable.of(records)
    values = table.by_unit(table.codes([metric]) == 0, table.values)
    return ScoredUnits(
        sample_ids=tuple(records.column("sample_id").to_pylist()),
        candidates=tuple(records.column("candidate").to_pylist()),
        values=tuple(None if math.isnan(value) else value for value in values.tolist()),
    )


class StopMonitor:
    """Hears of finished units and looks at them in the run's order, group by group: one that comes
    early waits for those before it, because answers that take long may be other answers."""

    def __init__(self, watch: StopWatch) -> None:
        self._watch, self._columns = watch, {name: i for i, name in enumerate(watch.candidates)}
        order = watch.order
        shape = order.positions.size, len(watch.candidates)
        self._values: FloatArray = np.full(shape, np.nan)
        self._has_come: npt.NDArray[np.bool_] = np.zeros(shape, np.bool_)
        self._next = 0  # the first place that was not looked at
        self._bets: DifferenceBets | None = None
        self._sequences: list[ConfidenceSequence] = []
        if watch.rule.kind == "compare":
            self._bets = DifferenceBets(LEVEL, order.largest_group, order.strata.size)
        else:
            level = 1 - (1 - LEVEL) / max(1, len(watch.candidates))
            self._sequences = [
                ConfidenceSequence(level, order.largest_group) for _ in watch.candidates
            ]
        self._n_looks = 0

    def add(self, units: ScoredUnits) -> EarlyDecision | None:
        """Takes units and looks at each group that is complete; the decision, once there is one."""
        places = self._watch.order.places_of(units.sample_ids)
        low, width = self._watch.scale[0], self._watch.scale[1] - self._watch.scale[0]
        for row, name, value in zip(places.tolist(), units.candidates, units.values, strict=True):
            column = self._columns.get(name)
            if row < 0 or column is None:
                continue
            self._has_come[row, column] = True
            if value is not None:
                self._values[row, column] = min(max((value - low) / (width or 1.0), 0.0), 1.0)
        return self._look()

    def _look(self) -> EarlyDecision | None:
        groups, strata = self._watch.order.groups, self._watch.order.strata
        while self._next < groups.size:
            end = int(np.searchsorted(groups, groups[self._next], side="right"))
            if not self._has_come[self._next : end].all():
                return None
            values = self._values[self._next : end]
            if self._bets is not None:
                values = values[:, 1] - values[:, 0]
                if (scored := values[~np.isnan(values)]).size:
                    self._bets.add(float(scored.sum()), scored.size)
            else:
                stratum = int(strata[groups[self._next]])
                for sequence, column in zip(self._sequences, values.T, strict=True):
                    if (scored := column[~np.isnan(column)]).size:
                        sequence.add(float(scored.sum()), scored.size, stratum)
            self._next, self._n_looks = end, self._n_looks + 1
            if (decision := self._decide()) is not None:
                return decision
        return None

    def _decide(self) -> EarlyDecision | None:
        watch, (low, high) = self._watch, self._watch.scale
        if self._bets is not None:
            if not self._bets.is_decided:
                return None
            ends = [(high - low) * end for end in self._bets.interval()]
            mean, of = (high - low) * self._bets.mean, watch.candidates[1]
        else:
            halves = [sequence.half_width for sequence in self._sequences]
            widest = int(np.argmax(halves))
            if watch.rule.width is None or halves[widest] * (high - low) > watch.rule.width:
                return None
            sequence = self._sequences[widest]
            ends = [low + (high - low) * end for end in sequence.interval]
            mean, of = low + (high - low) * sequence.mean, watch.candidates[widest]
        return EarlyDecision(
            rule=watch.rule.text,
            metric=watch.rule.metric,
            of=of,
            n_looked_at=self._next,
            n_looks=self._n_looks,
            estimate=mean,
            low=ends[0],
            high=ends[1],
            level=LEVEL,
        )


def describe_decision(decision: EarlyDecision) -> str:
    """The reason for which the run ends, such as "decided: helpfulness ±0.1 (...)"."""
    ends = f"[{decision.low:.3g}, {decision.high:.3g}]"
    what = f"{decision.estimate:.3g} {ends} for {decision.of}"
    if decision.rule.startswith("compare"):
        what = f"{decision.of} differs by {decision.estimate:+z.3g} {ends}"
    return (
        f"decided: {decision.rule} after {decision.n_looked_at:,} samples ({what}, "
        f"{decision.level:.0%} at all looks together)"
    )
