"""Labelling of one metric of a run: which unit comes next for whom, and the answers."""

from __future__ import annotations

import csv
import io
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from memray_eval.analysis.calibration import Unit, people_agreement
from memray_eval.analysis.score_table import ScoreTable
from memray_eval.errors import ConfigError, DataError, nearest
from memray_eval.metric import JudgedMetric
from memray_eval.metrics import all_metrics
from memray_eval.metrics._shared.evidence import QuotedText
from memray_eval.metrics._shared.pairs import FIRST
from memray_eval.report.html.prompts import judge_messages
from memray_eval.report.labelling.queue import (
    Choice,
    JudgedUnit,
    QueuedUnit,
    choices_for,
    doubt_of,
    inclusion_probabilities,
    make_queue,
)
from memray_eval.report.labelling.store import LabelEvent, LabelStore
from memray_eval.report.view.parquet_parts import RecordFile, list_parts, read_columns, read_record
from memray_eval.results.run_folder import RunFolder
from memray_eval.storage.paths import locate, readable
from memray_eval.text_processing.sample_text import memory_entries
from memray_eval.types import Record, Response, Sample, dumps, pair_of

LEASE_S = 300.0  # how long a unit that one tab shows is not given to another of the same rater
LONGEST_NAME = 64
_LABELLED = ("scored", "abstained", "error")
# Fields in which a judge explains; what the others quote can be marked
_EXPLAINS = {"reason", "reasoning", "explanation", "tone_notes", "tailoring_notes", "verdict"}
_SHORTEST_QUOTE = 4
_FIELDS = ("task", "context", "answers", "memory", "history")  # of a file of labels, if not empty


class LabelSession:
    """Hands out units and takes answers, for several raters and tabs. Thread-safe."""

    def __init__(
        self,
        folder: RunFolder,
        metric: str,
        queue: Sequence[QueuedUnit],
        choices: Sequence[Choice],
        parts: Sequence[RecordFile],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        local = folder.local_path
        if local is None:
            raise ConfigError(
                f"labels are added to a file of the run's folder, and {folder.path} is in the "
                "cloud: copy it to this machine, and label it there"
            )
        self.folder, self.metric, self.choices = folder, metric, tuple(choices)
        self.queue, self._clock = list(queue), clock
        self._place = {unit.unit_id: number for number, unit in enumerate(queue)}
        self._filesystem: fs.FileSystem = locate(folder.path)[0]
        self._parts = {part.name: part for part in parts}
        self._leases: dict[tuple[str, str], tuple[str, float]] = {}
        self._lock = threading.Lock()
        self._store = LabelStore(local, metric)

    def state(self, rater: str, tab: str) -> dict[str, Any]:
        """The unit that this tab of a rater shows: the one it has, else the first in the queue that
        the rater has not answered and no other tab of theirs shows. Nothing of it says what a judge
        found, or who answered. None once all are done."""
        rater = check_rater(rater)
        with self._lock:
            self._store.refresh()
            own = [event for event in self._store.standing() if event.rater == rater]
            position = self._next(rater, tab, {event.unit_id for event in own})
        kinds = Counter(event.kind for event in own)
        return {
            "unit": None if position is None else self._shown(position),
            "labelled": kinds["label"],
            "skipped": kinds["skip"],
            "total": len(self.queue),
            "can_undo": bool(own),
        }

    def answer(
        self, rater: str, tab: str, event_id: str, unit_id: str, value: float | None, aided: bool
    ) -> dict[str, Any]:
        """Keeps a rater's answer (None: passed over), and returns the state after it. Raises
        ConfigError for an unknown unit or value, and if it cannot be kept."""
        rater = check_rater(rater)
        if unit_id not in self._place:
            raise ConfigError(f"no unit {unit_id!r} to label in this run")
        values = [choice.value for choice in self.choices]
        if value is not None and not any(abs(value - allowed) < 1e-9 for allowed in values):
            listed = ", ".join(f"{allowed:g}" for allowed in values)
            raise ConfigError(f"{value:g} is none of the answers: {listed}")
        event = LabelEvent(
            id=event_id,
            kind="skip" if value is None else "label",
            metric=self.metric,
            rater=rater,
            unit_id=unit_id,
            value=value,
            tab=tab,
            aided=aided,
            at=round(time.time(), 3),
        )
        with self._lock:
            self._store.add(event)
            self._leases.pop((rater, unit_id), None)
        return self.state(rater, tab)

    def undo(self, rater: str, tab: str, event_id: str) -> dict[str, Any]:
        """Takes back the rater's last answer, of this tab if any, and returns the state."""
        rater = check_rater(rater)
        with self._lock:
            self._store.refresh()
            own = [event for event in self._store.standing() if event.rater == rater]
            of_tab = [event for event in own if event.tab == tab]
            if last := (of_tab or own)[-1:]:
                undone = {"undoes": last[0].id, "tab": tab, "at": round(time.time(), 3)}
                self._store.add(
                    LabelEvent(id=event_id, kind="undo", metric=self.metric, rater=rater, **undone)
                )
                for key in [key for key, (of, _) in self._leases.items() if of == tab]:
                    del self._leases[key]
                self._leases[rater, last[0].unit_id] = (tab, self._clock())
        return self.state(rater, tab)

    def quotes(self, unit_id: str) -> list[str]:
        """The judge's quotes of a unit's answer, without its opinion."""
        if unit_id not in self._place:
            raise ConfigError(f"no unit {unit_id!r} to label in this run")
        record = self._record(self._place[unit_id])
        text = QuotedText((record.response or Response()).text)
        judgments = [score.judgment for score in record.scores if score.metric == self.metric]
        quotes = _texts_in(judgments[0]) if judgments else []
        return [quote for quote in quotes if text.holds(quote)]

    def agreement(self) -> dict[str, Any]:
        """The agreement of raters, on the units that two or more of them labelled; `figures` as
        `calibrate` has them of people, None without such units."""
        labels = self._labels()
        raters = _raters(labels)
        units = [
            Unit(id=unit_id, people=tuple(map(of.get, raters)), judge=None, cluster=unit_id)
            for unit_id, of in _by_unit(labels).items()
        ]
        values = [choice.value for choice in self.choices]
        measured = people_agreement(units, (min(values), max(values)))
        return {
            "raters": {rater: sum(event.rater == rater for event in labels) for rater in raters},
            "n_units": len(units),
            "n_shared": 0 if measured is None else measured.n,
            "figures": None
            if measured is None
            else {name: figure.model_dump() for name, figure in measured.figures.items()},
        }

    def write_csv(self) -> str:
        """The labelled units as `calibrate` reads them: the texts, a column a rater (human, human2,
        ...; rater, rater2, ... have their names), and `weight`, 1 / the probability that the unit
        was drawn. Texts are as they are, so it is no file for a spreadsheet."""
        labels = self._labels()
        raters, by_unit = _raters(labels), _by_unit(labels)
        positions = sorted(self._place[unit_id] for unit_id in by_unit)
        n_reached = positions[-1] + 1 if positions else 0
        weights = 1 / inclusion_probabilities(self.queue, n_reached)
        records = [(position, self._record(position)) for position in positions]
        filled = [
            name for name in _FIELDS if any(getattr(record.sample, name) for _, record in records)
        ]
        is_pair = any(self._other(record.sample) is not None for _, record in records)
        human = [f"human{number or ''}" for number in _numbers(len(raters))]
        named = [f"rater{number or ''}" for number in _numbers(len(raters))]
        heads = ["unit_id", "id", "query", "response", *(["other"] if is_pair else []), *filled]
        file = io.StringIO(newline="")
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow([*heads, *human, *named, "weight"])
        for position, record in records:
            own = by_unit[record.unit_id]
            texts = [record.unit_id, record.sample.id, record.sample.query]
            texts.append((record.response or Response()).text)
            texts += [self._other(record.sample) or ""] if is_pair else []
            texts += [_cell(record.sample, name) for name in filled]
            values = [f"{own[rater]:g}" if rater in own else "" for rater in raters]
            names = [rater if rater in own else "" for rater in raters]
            rows.writerow([*texts, *values, *names, f"{weights[position]:.6g}"])
        return file.getvalue()

    def calibrate_command(self, path: str) -> str:
        """The command that compares judges with a file of these labels; "" for pairs."""
        head = self.write_csv().partition("\n")[0].split(",")
        if "other" in head:
            return ""
        fields = ("query", "response", *_FIELDS)
        shown = [name for name in head if name in fields or name.startswith("human")]
        mapped = ",".join(f"{name}={name}" for name in shown)
        return f"memray-eval calibrate {path} --metric {self.metric} --map {mapped} --judge JUDGE"

    def _next(self, rater: str, tab: str, done: set[str]) -> int | None:
        """The place in the queue of what a tab shows next, which it holds from now on."""
        now = self._clock()
        for key, (_, since) in list(self._leases.items()):
            if now - since > LEASE_S or (key[0] == rater and key[1] in done):
                del self._leases[key]
        held = {unit: of for (name, unit), (of, _) in self._leases.items() if name == rater}
        own = next((unit for unit, of in held.items() if of == tab), None)
        left = (unit.unit_id for unit in self.queue if unit.unit_id not in done | held.keys())
        unit_id = own or next(left, None)
        if unit_id is None:
            return None
        self._leases[rater, unit_id] = (tab, now)
        return self._place[unit_id]

    def _record(self, position: int) -> Record:
        unit = self.queue[position]
        record = read_record(self._filesystem, self._parts[unit.part], unit.row)
        if record.unit_id != unit.unit_id:
            raise DataError(f"{unit.part} was written anew; start `memray-eval view --label` again")
        return record

    def _shown(self, position: int) -> dict[str, Any]:
        """The parts of a unit that a rater sees."""
        record = self._record(position)
        sample = record.sample
        return {
            "id": record.unit_id,
            "place": position,
            "query": sample.query,
            "memory": [list(entry) for entry in memory_entries(sample)],
            "required": sample.required_keys,
            "forbidden": sample.forbidden_keys,
            "history": [[turn.role, turn.content] for turn in sample.history],
            "answers": sample.answers,
            "response": (record.response or Response()).text,
            "other": self._other(sample),
        }

    def _other(self, sample: Sample) -> str | None:
        """The second answer of a pair, if pairs are labelled."""
        metric = all_metrics().get(self.metric)
        if metric is not None and FIRST not in metric.parts:
            return None
        pair = pair_of(sample)
        return None if pair is None else pair.other

    def _labels(self) -> list[LabelEvent]:
        with self._lock:
            self._store.refresh()
            standing = self._store.standing()
        return [
            event for event in standing if event.kind == "label" and event.unit_id in self._place
        ]


def open_labelling(folder: RunFolder, metric: str | None = None) -> LabelSession:
    """Opens a run for labelling by a metric; None: its headline, or the first that a judge scored.
    Raises ConfigError for one that no judge scored, DataError for unreadable records."""
    with readable(folder.path):
        parts = list_parts(folder.records())
    filesystem, _ = locate(folder.path)
    judged = _judged_metrics(filesystem, parts)
    name = metric or ""
    if metric is None:
        with suppress(DataError):  # the run has not ended
            name = folder.read_summary().headline
        name = name if name in judged else next(iter(judged), "")
    if name not in judged:
        hint = f"; did you mean {close!r}?" if (close := nearest(name, judged)) else ""
        names = ", ".join(judged) or "none"
        raise ConfigError(f"no judge scored {name!r} in this run{hint} There are: {names}")
    scale = _scale_of(folder, name)
    verdicts: list[JudgedUnit] = []
    seen: set[float] = set()
    fields: set[str] = set()
    for part in parts:
        first = 0
        for batch in read_columns(filesystem, part, ("unit_id", "response", "error", "scores")):
            for row, score in _scores_in(batch, name):
                doubt = doubt_of(score, scale)
                unit_id = batch["unit_id"][row].as_py()
                verdicts.append(JudgedUnit(unit_id, part.name, first + row, doubt))
                seen |= set() if score["value"] is None else {score["value"]}
                fields |= {key for key, _ in score["parts"] or ()}
            first += batch.num_rows
    unique = {verdict.unit_id: verdict for verdict in verdicts}
    if not unique:
        raise ConfigError(f"the run has no answer that {name} was asked about")
    is_integer = scale[1] - scale[0] > 1 and all(float(value).is_integer() for value in seen)
    choices = choices_for(scale, is_integer, seen, fields)
    queue = make_queue(unique.values(), f"{folder.run_id}\x1f{name}")
    return LabelSession(folder, name, queue, choices, parts)


def rubric_text(metric: str) -> str:
    """The rubric that a judge gets of a built-in metric, "" of any other."""
    definition = all_metrics().get(metric)
    messages = judge_messages(definition) if isinstance(definition, JudgedMetric) else ()
    return messages[0].content if messages else ""


def check_rater(name: str) -> str:
    """The name without space around it. Raises ConfigError for none, or one that is no name."""
    name = " ".join(name.split())
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise ConfigError(f"a rater's name has 1 to {LONGEST_NAME} printable characters")
    return name


def _scores_in(batch: pa.RecordBatch, metric: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The rows of a batch that can be labelled, with their score."""
    table = ScoreTable.of(batch)
    labelled = table.only(table.codes([metric]) == 0)
    failed = batch["error"].is_valid().to_pylist()
    empty = pc.equal(pc.utf8_trim_whitespace(pc.fill_null(batch["response"], "")), "").to_pylist()
    chosen = zip(labelled.unit.tolist(), labelled.scores.to_pylist(), strict=True)
    for row, score in chosen:
        if score["status"] in _LABELLED and not failed[row] and not empty[row]:
            yield row, score


def _judged_metrics(filesystem: fs.FileSystem, parts: Sequence[RecordFile]) -> list[str]:
    """The metrics whose scores have a judgment, in the order of the records."""
    metrics: dict[str, None] = {}
    for part in parts[:1]:
        for batch in read_columns(filesystem, part, ("scores",)):
            scores = ScoreTable.of(batch)
            judged = scores.column("metric").filter(scores.column("judgment").is_valid())
            metrics |= dict.fromkeys(judged.unique().to_pylist())
    return list(metrics)


def _scale_of(folder: RunFolder, metric: str) -> tuple[float, float]:
    """The metric's scale, as the run's summary has it, else as this version does."""
    try:
        metrics = folder.read_summary().metrics
    except DataError:
        metrics = ()
    for summarised in metrics:
        if summarised.metric == metric:
            return summarised.scale
    definition = all_metrics().get(metric)
    return definition.scale if definition is not None else (0.0, 1.0)


def _texts_in(judgment: str | None) -> list[str]:
    """Every text of a judgment that may be a quote, each once."""
    try:
        fields = json.loads(judgment or "{}")
    except ValueError:
        return []
    texts: dict[str, None] = {}

    def walk(value: Any, field: str) -> None:
        if isinstance(value, str):
            if field not in _EXPLAINS and len(value.strip()) >= _SHORTEST_QUOTE:
                texts[value] = None
        elif isinstance(value, list):
            for item in value:
                walk(item, field)
        elif isinstance(value, dict):
            for name, item in value.items():
                walk(item, name)

    walk(fields, "")
    return list(texts)


def _raters(labels: Sequence[LabelEvent]) -> list[str]:
    """In the order of their first label."""
    return list(dict.fromkeys(label.rater for label in sorted(labels, key=lambda label: label.at)))


def _by_unit(labels: Sequence[LabelEvent]) -> dict[str, dict[str, float]]:
    by_unit: dict[str, dict[str, float]] = {}
    for label in labels:
        if label.value is not None:
            by_unit.setdefault(label.unit_id, {})[label.rater] = label.value
    return by_unit


def _numbers(n: int) -> list[int]:
    """The suffix of a column's name: nothing for the first, then 2, 3, ..."""
    return [0, *range(2, n + 1)][: max(1, n)]


def _cell(sample: Sample, name: str) -> str:
    value = getattr(sample, name)
    if isinstance(value, str) or value is None:
        return value or ""
    if name == "history":
        return dumps([turn.model_dump() for turn in value])
    return dumps(dict(value) if name == "memory" else list(value))
