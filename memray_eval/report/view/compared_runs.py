"""The comparison page of runs that were picked from a list, at an address that names them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import ExitStack
from urllib.parse import quote, urlencode

from memray_eval.analysis.comparing.open_runs import (
    ComparedRun,
    compare_runs,
    pick_candidates,
    read_changed_units,
)
from memray_eval.analysis.pairs.report import find_report
from memray_eval.analysis.scores import candidates_of
from memray_eval.errors import ConfigError
from memray_eval.report.html.comparison import ComparedSide, render_comparison
from memray_eval.report.runs_list import RunList, UnknownRun
from memray_eval.results.run_folder import RunFolder
from memray_eval.storage.paths import readable

MOST_SIDES, LISTED_FLIPS, PAGES_KEPT = 20, 20, 8


class ComparedRuns:
    """Renders comparisons, one at a time, and keeps the last ones. Safe for several threads."""

    def __init__(self, runs: RunList) -> None:
        self._runs, self._lock = runs, threading.Lock()
        self._pages: OrderedDict[object, str] = OrderedDict()

    def page(self, named: Sequence[str], by: str | None = None) -> str:
        """The page of these sides, the baseline first: a run's id (all of its candidates) or
        ID:CANDIDATE. Raises UnknownRun, DataError, and ConfigError for what is not comparable."""
        with self._lock:
            sides = [side for name in dict.fromkeys(named) for side in self._expand(name)]
            if not 2 <= len(sides) <= MOST_SIDES:
                raise ConfigError(
                    f"pick two or more runs to compare, with up to {MOST_SIDES} candidates in all; "
                    f"these have {len(sides)}"
                )
            opened = pick_candidates([f"{self._runs.path}/{side}" for side in sides])
            pairs = find_report([(side.folder, side.candidate) for side in opened])
            parts = (tuple(side.folder.list_parts()) for side in opened)
            key = (tuple(sides), by, pairs and pairs.runs, *parts)
            if key not in self._pages:
                self._pages[key] = _render(sides, opened, by)
                if len(self._pages) > PAGES_KEPT:
                    self._pages.popitem(last=False)
            return self._pages[key]

    def _expand(self, name: str) -> list[str]:
        """The sides that a name stands for, each as ID:CANDIDATE. Both may hold colons."""
        ends = [len(name), *(at for at in range(len(name) - 1, 0, -1) if name[at] == ":")]
        for end in ends:
            try:
                path = self._runs.path_of(name[:end])
            except UnknownRun:
                continue
            if name[end + 1 :]:
                return [name]
            with readable(path):
                return [
                    f"{name}:{candidate}" for candidate in candidates_of(RunFolder(path).records())
                ]
        raise UnknownRun(f"{self._runs.path} holds no run {name!r}")


def _render(sides: Sequence[str], opened: Sequence[ComparedRun], by: str | None) -> str:
    comparison, _ = compare_runs(opened, by=by, flips=LISTED_FLIPS)
    letters = {common.other: common.letter for common in comparison.common}
    compared = []
    for side, run in zip(sides, opened, strict=True):
        others = [other for other in sides if other != side]
        address = f"run/{quote(run.folder.run_id, safe='')}/"
        as_baseline = _address([side, *others], by) if side != sides[0] else ""
        without = _address(others, by) if len(sides) > 2 else ""
        letter = letters.get(run.name, "A")
        compared.append(ComparedSide(letter, run.name, address, as_baseline, without))
    with ExitStack() as stack:
        for run in opened:
            stack.enter_context(readable(run.folder.path))
        texts = read_changed_units(comparison, opened)
    return render_comparison(comparison, texts, compared)


def _address(sides: Sequence[str], by: str | None) -> str:
    parameters = [*(("run", side) for side in sides), *([("by", by)] if by else [])]
    return f"compare?{urlencode(parameters)}"
