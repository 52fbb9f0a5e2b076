"""Two or more candidates, of one run or of several, compared on the units that they share: what differs, whether that could be
chance, and what makes the runs hard to compare.

Units are common by sample id and task. Of the records only ids, metric names and values are decoded, no texts.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from memray_eval.errors import ConfigError, DataError
from memray_eval.ports import FloatArray
from memray_eval.report.statistics import (
    Clusters,
    Interval,
    Paired,
    Settings,
    benjamini_hochberg,
    holm,
    mean_interval,
    paired,
    wilson_interval,
)
from memray_eval.report.tables import NOTHING, aligned
from memray_eval.types import Frozen

_SCORE = "scores.list.element"
_UNIT = ("sample_id", "task", "suite", "candidate")
CLUSTER_COLUMNS = ("sample_id", "task", "scenario", "prompt_type", "language")
METADATA = "metadata"
FEW_CLUSTERS = 10
_BETWEEN = "\x1f"  # of a unit's sample id and task, in its key
Flags = npt.NDArray[np.bool_]
Direction = Literal["up", "down"]


@dataclass(frozen=True)
class Scores:
    """One candidate's scores: `units` with a row a unit (key, sample_id, task, cluster), each metric's value a unit, NaN where
    it has none, and the suites the samples are of."""

    units: pa.Table
    values: Mapping[str, FloatArray]
    suites: tuple[str, ...]


@dataclass(frozen=True)
class Side:
    """One candidate of one run, under the name it has in this comparison. `manifest` is the run's manifest.json."""

    name: str
    candidate: str
    manifest: Mapping[str, Any]
    scores: Scores


class Flip(Frozen):
    """A unit that one side solved and the other did not: `up` where B did."""

    sample_id: str
    task: str
    direction: Direction


class MetricComparison(Frozen):
    """One metric of B (`other`) against A, over the `paired.n` common units that both have a score of; `only_a` and `only_b`
    count the common units that one side alone has one of.

    The p-values are corrected over all metrics and candidates of the comparison: `p_holm` for any false finding, `p_fdr` for
    the share of them (Benjamini-Hochberg). `interval_a` and `interval_b` are those of the means. `flips_up` and `flips_down`
    are there for metrics whose values are 0 and 1 only, `flips` lists the first of them.
    """

    metric: str
    other: str
    paired: Paired
    interval_a: Interval | None = None
    interval_b: Interval | None = None
    p_holm: float | None = None
    p_fdr: float | None = None
    only_a: int = 0
    only_b: int = 0
    flips_up: int | None = None
    flips_down: int | None = None
    flips: tuple[Flip, ...] = ()


class Common(Frozen):
    """How the units of A and of `other` meet. `letter` is what warnings and tables call that one: B, C, ..."""

    other: str
    letter: str
    n: int
    only_a: int
    only_b: int


class Comparison(Frozen):
    """All that `compare` found. `baseline` is A; `cluster` the field that units were clustered by. `failed_gates`
    says in words what `failures` found."""

    baseline: str
    others: tuple[str, ...]
    cluster: str | None
    settings: Settings
    common: tuple[Common, ...]
    metrics: tuple[MetricComparison, ...]
    warnings: tuple[str, ...] = ()
    failed_gates: tuple[str, ...] = ()


class Gate(Frozen):
    """A condition on a metric's difference B - A under which a check fails."""

    text: str
    metric: str
    sign: str
    bound: float


_SIGNS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_GATE = re.compile(r"\s*([A-Za-z_]\w*)\s*(<=|>=|<|>)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")


def parse_gate(text: str) -> Gate:
    """ "empathy < -0.1" as a gate. Raises ConfigError for anything else."""
    found = _GATE.fullmatch(text)
    if found is None:
        raise ConfigError(f'cannot read the gate {text!r}; write METRIC OP NUMBER with <, <=, > or >=: "empathy < -0.1"')
    return Gate(text=text.strip(), metric=found[1], sign=found[2], bound=float(found[3]))


def failures(comparison: Comparison, gates: Sequence[Gate]) -> list[str]:
    """Which gates fail, in words. One whose metric has no difference, for want of common scored units, fails too: it was not
    passed. Raises ConfigError for a metric that was not compared."""
    known = list(dict.fromkeys(metric.metric for metric in comparison.metrics))
    if unknown := [gate for gate in gates if gate.metric not in known]:
        raise ConfigError(f"gate {unknown[0].text!r}: no metric {unknown[0].metric!r} in common; there are: {', '.join(known)}")
    return [
        told
        for gate in gates
        for metric in comparison.metrics
        if metric.metric == gate.metric and (told := _failure(gate, metric))
    ]


def _failure(gate: Gate, metric: MetricComparison) -> str:
    difference = metric.paired.difference
    if difference is None:
        return f"{gate.text}: {metric.other} has no unit scored on both sides"
    return f"{gate.text}: {metric.other} differs by {difference:+.4f}" if _SIGNS[gate.sign](difference, gate.bound) else ""


def candidates_of(records: pads.Dataset) -> list[str]:
    """The names of the candidates that a run's records are of, sorted."""
    return sorted(records.to_table(columns=["candidate"])["candidate"].unique().to_pylist())


def read_scores(records: pads.Dataset, candidate: str, cluster: str | None = None) -> Scores:
    """One candidate's scores, of Parquet files with RECORD_SCHEMA. A unit written twice counts once. `cluster` is one of
    CLUSTER_COLUMNS, or a key of the samples' metadata, with or without "metadata." before it."""
    column = cluster if cluster is None or cluster in CLUSTER_COLUMNS else METADATA
    extra = () if column is None or column in _UNIT else (column,)
    read = [_read(file, candidate, (*_UNIT, *extra)) for file in records.get_fragments()]
    units = pa.concat_tables([table for table, _ in read])
    names = list(dict.fromkeys(name for _, values in read for name in values))
    values = {name: np.concatenate([v.get(name, np.full(len(t), np.nan)) for t, v in read]) for name in names}
    keys = pc.binary_join_element_wise(units["sample_id"], pc.fill_null(units["task"], ""), _BETWEEN)
    groups = [None] * len(units) if column is None or cluster is None else _clusters(units[column], column, cluster)
    kept = _first_of_each(keys)
    table = pa.table(
        {
            "key": keys,
            "sample_id": units["sample_id"],
            "task": pc.fill_null(units["task"], ""),
            "cluster": pa.array(groups, pa.string()),
        }
    )
    suites = units["suite"].unique().drop_null().to_pylist()
    return Scores(table.take(kept), {name: figures[kept] for name, figures in values.items()}, tuple(sorted(suites)))


def _read(file: pads.ParquetFileFragment, candidate: str, columns: Sequence[str]) -> tuple[pa.Table, dict[str, FloatArray]]:
    wanted = [*columns, *(f"{_SCORE}.{name}" for name in ("metric", "value"))]
    with file.open() as stream:
        table = pq.ParquetFile(stream).read(columns=wanted)
    table = table.filter(pc.equal(table["candidate"], candidate))
    scores = table["scores"].combine_chunks()
    unit, each = pc.list_parent_indices(scores).to_numpy(), scores.flatten()
    coded = pc.struct_field(each, "metric").dictionary_encode()
    codes, figures = coded.indices.to_numpy(), pc.struct_field(each, "value").to_numpy(zero_copy_only=False)
    values = {}
    for code, name in enumerate(coded.dictionary.to_pylist()):
        values[name] = np.full(len(table), np.nan)
        values[name][unit[codes == code]] = figures[codes == code]
    return table.drop_columns(["scores"]), values


def _first_of_each(keys: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    rows = pa.table({"key": keys, "row": np.arange(len(keys))}).group_by("key").aggregate([("row", "min")])
    return np.sort(rows["row_min"].to_numpy())


def _clusters(column: pa.ChunkedArray, name: str, field: str) -> list[str | None]:
    """The cluster of each unit; None where it names none."""
    if name != METADATA:
        return [text or None for text in column.to_pylist()]
    path = field.removeprefix(f"{METADATA}.").split(".")
    found = []
    for text in column.to_pylist():
        value: Any = json.loads(text or "{}")
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        found.append(None if value is None else value if isinstance(value, str) else json.dumps(value, sort_keys=True))
    return found


def compare(
    sides: Sequence[Side],
    *,
    metrics: Sequence[str] = (),
    cluster: str | None = None,
    settings: Settings | None = None,
    flips: int = 0,
) -> Comparison:
    """Compares each side after the first with the first, over `metrics` (none: all that they share), listing up to `flips`
    flipped units a metric. Raises ConfigError for fewer than two sides, an unknown metric or cluster field, and DataError where
    two sides share no unit."""
    if len(sides) < 2:
        raise ConfigError("compare takes two or more run folders: compare A B [C...]")
    base, *others = sides
    how = settings or Settings()
    letters = ascii_uppercase[1:]
    if len(others) > len(letters):
        raise ConfigError(f"compare takes up to {len(letters) + 1} runs, not {len(sides)}")
    meetings = [_meet(base, other, letter, cluster) for other, letter in zip(others, letters, strict=False)]
    found = [
        _metric(meeting, name, how, flips)
        for meeting in meetings
        for name in _chosen(base.scores, meeting.other.scores, metrics)
    ]
    return Comparison(
        baseline=base.name,
        others=tuple(side.name for side in others),
        cluster=cluster,
        settings=how,
        common=tuple(meeting.common for meeting in meetings),
        metrics=tuple(_corrected(found)),
        warnings=tuple(told for meeting in meetings for told in _warnings(base, meeting, metrics)),
    )


@dataclass(frozen=True)
class _Meeting:
    """The common units of A and another: their rows on each side, and their clusters, of which `n_alone` units name none."""

    base: Side
    other: Side
    rows_a: npt.NDArray[np.intp]
    rows_b: npt.NDArray[np.intp]
    clusters: Clusters | None
    n_alone: int
    common: Common


def _meet(base: Side, other: Side, letter: str, cluster: str | None) -> _Meeting:
    keys = base.scores.units["key"]
    places = pc.index_in(other.scores.units["key"], value_set=keys.combine_chunks())
    is_common = places.is_valid().to_numpy()
    rows_b = np.flatnonzero(is_common)
    if not rows_b.size:
        raise DataError(f"{base.name} and {other.name} share no unit: no sample id with the same task is in both")
    rows_a = places.drop_null().to_numpy().astype(np.intp)
    groups, n_alone = None, 0
    if cluster is not None:
        names = pc.coalesce(base.scores.units["cluster"].take(rows_a), other.scores.units["cluster"].take(rows_b))
        n_alone = names.null_count
        if n_alone == len(names):
            there = ", ".join(CLUSTER_COLUMNS)
            raise ConfigError(
                f"no unit names a {cluster!r} to cluster by; there are: {there}, and the keys of the samples' metadata"
            )
        groups = _numbered(names)
    n, n_a, n_b = rows_b.size, len(keys), len(is_common)
    common = Common(other=other.name, letter=letter, n=n, only_a=n_a - n, only_b=n_b - n)
    return _Meeting(base, other, rows_a, rows_b, groups, n_alone, common)


def _numbered(names: pa.ChunkedArray) -> Clusters:
    """A number a cluster; a unit that names none is a cluster of its own."""
    codes: Clusters = names.combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy().astype(np.intp, copy=True)
    alone = np.flatnonzero(codes < 0)
    codes[alone] = codes.max() + 1 + np.arange(alone.size)
    return codes


def _chosen(a: Scores, b: Scores, metrics: Sequence[str]) -> list[str]:
    """The metrics to compare, in A's order or the one asked for."""
    shared = [name for name in a.values if name in b.values]
    if unknown := [name for name in metrics if name not in shared]:
        raise ConfigError(f"no metric {unknown[0]!r} in common; there are: {', '.join(shared) or 'none'}")
    return list(metrics) or shared


def _metric(meeting: _Meeting, name: str, settings: Settings, n_flips: int) -> MetricComparison:
    a = meeting.base.scores.values[name][meeting.rows_a]
    b = meeting.other.scores.values[name][meeting.rows_b]
    has_a, has_b = ~np.isnan(a), ~np.isnan(b)
    both = has_a & has_b
    clusters = None if meeting.clusters is None else meeting.clusters[both]
    found = MetricComparison(
        metric=name,
        other=meeting.other.name,
        paired=paired(a[both], b[both], clusters, settings),
        interval_a=_interval(a[both], clusters, settings),
        interval_b=_interval(b[both], clusters, settings),
        only_a=int(np.count_nonzero(has_a & ~has_b)),
        only_b=int(np.count_nonzero(has_b & ~has_a)),
    )
    if not (both.any() and _is_binary(a[both]) and _is_binary(b[both])):
        return found
    up, down = both & (b > a), both & (b < a)
    listed = np.flatnonzero(up | down)[:n_flips]
    units = meeting.other.scores.units.select(["sample_id", "task"]).take(meeting.rows_b[listed]).to_pylist()
    flipped = (Flip(**unit, direction="up" if up[row] else "down") for unit, row in zip(units, listed, strict=True))
    counts = {"flips_up": int(up.sum()), "flips_down": int(down.sum())}
    return found.model_copy(update={**counts, "flips": tuple(flipped)})


def _is_binary(values: FloatArray) -> bool:
    return bool(np.isin(values, (0.0, 1.0)).all())


def _interval(values: FloatArray, clusters: Clusters | None, settings: Settings) -> Interval | None:
    """Of a mean: Wilson's for independent zeros and ones, else as the difference's."""
    if values.size and clusters is None and not settings.bootstrap and _is_binary(values):
        return wilson_interval(int(values.sum()), values.size, settings.level)
    return mean_interval(values, clusters, settings)


def _corrected(found: Sequence[MetricComparison]) -> Iterator[MetricComparison]:
    """With the p-values corrected over all that have one."""
    raw = [metric.paired.p_value for metric in found if metric.paired.p_value is not None]
    corrected = iter(zip(holm(raw), benjamini_hochberg(raw), strict=True))
    for metric in found:
        if metric.paired.p_value is None:
            yield metric
        else:
            p_holm, p_fdr = next(corrected)
            yield metric.model_copy(update={"p_holm": p_holm, "p_fdr": p_fdr})


def _warnings(base: Side, meeting: _Meeting, metrics: Sequence[str]) -> Iterator[str]:
    """What makes the difference of two sides something else than that of their candidates."""
    other, common = meeting.other, meeting.common
    names, sides = f"A and {common.letter}", {"A": base, common.letter: other}
    for letter, side in sides.items():
        if (status := side.manifest.get("status")) != "finished" and not (letter == "A" and common.letter != "B"):
            yield f"{letter} is not finished: its status is {status!r}"
    if base.scores.suites != other.scores.suites:
        yield f"{names} are of different suites: {_listed(base.scores.suites)}; {_listed(other.scores.suites)}"
    datasets = [side.manifest.get("dataset") or {} for side in (base, other)]
    if datasets[0].get("fingerprint") != datasets[1].get("fingerprint"):
        yield f"{names} read different datasets: {' and '.join(str(each.get('path', 'unknown')) for each in datasets)}"
    compared = _chosen(base.scores, other.scores, metrics)
    yield from _apart("judges", "judges", sides, compared)
    yield from _heard_apart(sides, compared)
    yield from _apart("rubric digests", "rubrics", sides, compared)
    if not metrics and (apart := sorted(set(base.scores.values) ^ set(other.scores.values))):
        yield f"metrics that only one of {names} has are not compared: {', '.join(apart)}"
    if common.only_a or common.only_b:
        yield f"units without a partner: {common.only_a} of A, {common.only_b} of {common.letter}"
    if meeting.clusters is not None and (n := np.unique(meeting.clusters).size) < FEW_CLUSTERS:
        yield f"{names} have {n} clusters: with fewer than {FEW_CLUSTERS}, clustered standard errors come out too small"
    if meeting.n_alone:
        yield f"{meeting.n_alone} common units of {names} name no cluster: each is one of its own"


def _apart(what: str, key: str, sides: Mapping[str, Side], compared: Sequence[str]) -> Iterator[str]:
    """A line for each metric, or metric/task, of which the manifests say different things."""
    said = {letter: side.manifest.get(key) or {} for letter, side in sides.items()}
    for name in dict.fromkeys(name for each in said.values() for name in each):
        there = {letter: each.get(name, "none") for letter, each in said.items()}
        if name.partition("/")[0] in compared and len(set(there.values())) > 1:
            yield f"{name}: different {what}: {', '.join(f'{told} in {letter}' for letter, told in there.items())}"


def _heard_apart(sides: Mapping[str, Side], compared: Sequence[str]) -> Iterator[str]:
    """A line for each metric that the same judges were to score, and others did: a fallback, or a juror who failed."""
    for name in compared:
        planned = {str((side.manifest.get("judges") or {}).get(name)) for side in sides.values()}
        heard = {letter: _listed(_judged_by(side, name)) for letter, side in sides.items()}
        if len(planned) == 1 and "none" not in heard.values() and len(set(heard.values())) > 1:
            yield f"{name}: scored by {'; '.join(f'{judges} in {letter}' for letter, judges in heard.items())}"


def _judged_by(side: Side, metric: str) -> list[str]:
    return sorted((side.manifest.get("judged_by") or {}).get(f"{metric}/{side.candidate}") or ())


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def render(comparison: Comparison) -> str:
    """The comparison as text: warnings first, then two tables a candidate."""
    return "\n".join(_lines(comparison)) + "\n"


def _lines(comparison: Comparison) -> Iterator[str]:
    yield f"A: {comparison.baseline}"
    yield from (f"{common.letter}: {common.other}" for common in comparison.common)
    yield from (f"warning: {told}" for told in comparison.warnings)
    for common in comparison.common:
        rows = [metric for metric in comparison.metrics if metric.other == common.other]
        other = common.letter
        yield from ("", f"{other} against A: {common.n} common units", "")
        level = f"{comparison.settings.level:.0%} of {other}-A"
        yield from aligned([("metric", "n", "A", other, f"{other}-A", level, "p", "p Holm"), *map(_difference_row, rows)])
        yield ""
        head = ("metric", "stderr", "d", "win/tie/loss", "flips", "only A", f"only {other}", "detectable")
        yield from aligned([head, *map(_detail_row, rows)])
        yield from (line for row in rows for line in _flip_lines(row))
    yield from ("", *_legend(comparison))


def _difference_row(row: MetricComparison) -> Sequence[str]:
    found = row.paired
    interval = NOTHING if found.low is None or found.high is None else f"[{found.low:+.4f}, {found.high:+.4f}]"
    means = (_figure(found.mean_a), _figure(found.mean_b), _figure(found.difference, "+.4f"))
    return (row.metric, str(found.n), *means, interval, _figure(found.p_value), _figure(row.p_holm))


def _detail_row(row: MetricComparison) -> Sequence[str]:
    found = row.paired
    flips = NOTHING if row.flips_up is None else f"+{row.flips_up} -{row.flips_down}"
    return (row.metric, _figure(found.stderr), _figure(found.effect_size, "+.2f"), f"{found.wins}/{found.ties}/{found.losses}",
            flips, str(row.only_a), str(row.only_b), _figure(found.detectable))  # fmt: skip


def _flip_lines(row: MetricComparison) -> Iterator[str]:
    if row.flips:
        yield from ("", f"{row.metric}, flipped units:")
        yield from (f"  {'+' if flip.direction == 'up' else '-'} {flip.sample_id} {flip.task}".rstrip() for flip in row.flips)


def _legend(comparison: Comparison) -> Iterator[str]:
    how = comparison.settings
    clusters = [row.paired.n_clusters for row in comparison.metrics if row.paired.n_clusters is not None]
    errors = f"clustered by {comparison.cluster} (CR1, {max(clusters, default=0)} clusters)" if comparison.cluster else "plain"
    yield f"Standard errors: {errors}. Intervals: {'bootstrap (BCa)' if how.bootstrap else 'Student'}."
    yield "p: sign-flip permutation test, two-sided; Holm: corrected over all rows. d: Cohen's, of the differences."
    yield f"detectable: the smallest true difference found {how.power:.0%} of the time. win: A is lower."
    yield "flips: units from 0 to 1 and from 1 to 0. only A: common units that have a score in A alone."


def _figure(value: float | None, form: str = ".4f") -> str:
    return NOTHING if value is None else f"{value:{form}}"
