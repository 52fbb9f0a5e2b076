"""Labelling of one metric of a run: which unit comes next for whom, and the answers."""

from __future__ import annotations

import csv
import io
import json
import threading
import time
import unicodedata
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from memray_eval.analysis.calibration import LEVEL, People, Unit, people_agreement
from memray_eval.errors import ConfigError, DataError, nearest
from memray_eval.metric import JudgedMetric
from memray_eval.metrics import all_metrics
from memray_eval.metrics._shared.evidence import QuotedText
from memray_eval.metrics._shared.pairs import FIRST
from memray_eval.report.html.prompts import judge_messages
from memray_eval.report.labelling.queue import Choice, Queue, UnitColumns
from memray_eval.report.labelling.store import LabelEvent, LabelRequest, LabelStore, QueueEvent
from memray_eval.report.view.parquet_parts import read_record
from memray_eval.results.parts import Part
from memray_eval.results.run_folder import RunFolder
from memray_eval.text_processing.sample_text import memory_entries
from memray_eval.types import Record, Response, Sample, dumps, pair_of

LEASE_S = 300.0  # how long a unit that one tab shows is not given to another of the same rater
LONGEST_NAME = 64
# Fields in which a judge explains; what the others quote can be marked
_EXPLAINS = {"reason", "reasoning", "explanation", "tone_notes", "tailoring_notes", "verdict"}
_SHORTEST_QUOTE = 4
# A rater's columns of a file of labels, by name
_OF_RATER: Mapping[str, Callable[[LabelEvent], str]] = {
    "human": lambda event: "" if event.value is None else f"{event.value:g}",
    "rater": lambda event: event.rater,
    "at": lambda event: datetime.fromtimestamp(event.at, UTC).isoformat(timespec="seconds"),
    "corrected": lambda event: event.answer,
    "comment": lambda event: event.comment,
}
MOST_RATERS = 100
_FIELDS = ("task", "context", "answers", "memory", "history")  # of a file of labels, if not empty


class LabelSession:
    """Hands out units and takes answers, for several raters and tabs. Thread-safe."""

    def __init__(
        self,
        folder: RunFolder,
        metric: str,
        units: UnitColumns,
        choices: Sequence[Choice],
        parts: Sequence[Part],
        store: LabelStore,
    ) -> None:
        self.folder, self.metric, self.choices = folder, metric, tuple(choices)
        self._units, self._parts, self._clock = units, list(parts), time.monotonic
        self._leases: dict[tuple[str, str], tuple[str, float]] = {}
        self._lock = threading.Lock()
        self._store, self._shared_by = store, store.queue
        self.queue = self._make_queue()

    def share(self, raters: Sequence[str], overlap: float = 1.0, limit: int | None = None) -> None:
        """Shares units among raters from now on. Raises ConfigError for no name, or one twice."""
        names = [check_rater(rater) for rater in raters]
        if not names or len(set(names)) < len(names) or len(names) > MOST_RATERS:
            raise ConfigError(
                f"a queue has 1 to {MOST_RATERS} raters, each of another name; it got "
                f"{', '.join(map(repr, names)) or 'none'}"
            )
        event = self._queue_event(raters=tuple(sorted(names)), overlap=overlap, limit=limit)
        with self._lock:
            self._store.refresh()
            before = self._store.queue or self._queue_event()
            if event != before.model_copy(update={"id": event.id, "at": event.at}):
                self._store.add(event)
            self._refresh()

    def state(self, rater: str, tab: str) -> dict[str, Any]:
        """The unit that this tab shows: the one it has, else the rater's next that no other tab of
        theirs shows; None once all are done. It says nothing of judges or raters."""
        rater = self._check_rater(rater)
        with self._lock:
            own = [event for event in self._store.standing() if event.rater == rater]
            position = self._next(rater, tab, {event.unit_id for event in own})
            total = self.queue.assigned(rater).size
        kinds = Counter(event.kind for event in own)
        return {
            "unit": None if position is None else self._shown(position),
            "labelled": kinds["label"],
            "skipped": kinds["skip"],
            "total": total,
            "can_undo": bool(own),
        }

    def answer(self, sent: LabelRequest) -> dict[str, Any]:
        """Keeps a rater's label; returns the state. Raises ConfigError for what is not known."""
        rater, value = self._check_rater(sent.rater), sent.value
        self._rank(sent.unit)
        values = [choice.value for choice in self.choices]
        if value is not None and not any(abs(value - allowed) < 1e-9 for allowed in values):
            listed = ", ".join(f"{allowed:g}" for allowed in values)
            raise ConfigError(f"{value:g} is none of the answers: {listed}")
        event = LabelEvent(
            id=sent.id, kind="skip" if value is None else "label", metric=self.metric,
            rater=rater, unit_id=sent.unit, value=value, tab=sent.tab, aided=sent.aided,
            answer=sent.answer.strip(), comment=sent.comment.strip(), at=round(time.time(), 3),
        )  # fmt: skip
        with self._lock:
            if self._store.queue is None and not self._store.precedes_queue:
                self._store.add(self._queue_event())
            self._store.add(event)
            self._leases.pop((rater, sent.unit), None)
        return self.state(rater, sent.tab)

    def undo(self, rater: str, tab: str, event_id: str) -> dict[str, Any]:
        """Takes back the rater's last answer, of this tab if any, and returns the state."""
        rater = self._check_rater(rater)
        with self._lock:
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
        record = self._record(self._rank(unit_id))
        text = QuotedText((record.response or Response()).text)
        judgments = [score.judgment for score in record.scores if score.metric == self.metric]
        quotes = _texts_in(judgments[0]) if judgments else []
        return [quote for quote in quotes if text.holds(quote)]

    def agreement(self) -> dict[str, Any]:
        """The agreement of raters on units that two or more labelled, None without any and while a
        rater has units `left`. `n_unknown` labels are of units that the run does not have."""
        standing, n_unknown = self._standing()
        labels = [event for event in standing if event.kind == "label"]
        raters, by_unit = _raters(labels), _by_unit(labels)
        units = []
        for unit_id, of in by_unit.items():
            people = tuple(of[rater].value if rater in of else None for rater in raters)
            units.append(Unit(id=unit_id, people=people, judge=None, cluster=unit_id))
        values, left = [choice.value for choice in self.choices], self._left(standing)
        shared = sum(len(of) > 1 for of in by_unit.values())
        scale = (min(values), max(values))
        measured = None if any(left.values()) else people_agreement(units, scale)
        figures = measured and {name: of.model_dump() for name, of in measured.figures.items()}
        return {
            "raters": {rater: sum(event.rater == rater for event in labels) for rater in raters},
            "left": left,
            "n_units": len(units),
            "n_unknown": n_unknown,
            "n_shared": shared,
            "note": "" if measured is None else _note_of(measured),
            "figures": figures,
        }

    def check_shown(self) -> None:
        """Raises ConfigError while units are left: until then raters see no labels."""
        left = self._left(self._standing()[0])
        if any(left.values()):
            of_raters = ", ".join(f"{rater} {n}" for rater, n in left.items())
            raise ConfigError(
                f"labels are shown once all raters are done with the queue; left: {of_raters}"
            )

    def write_csv(self) -> str:
        """What raters said, as `calibrate` reads it: columns numbered by rater (human, human2,
        ...), and `weight`, 1 / the probability that the unit was drawn. Texts are unescaped."""
        events = [event for event in self._standing()[0] if _says_something(event)]
        raters, by_unit = _raters(events), _by_unit(events)
        ranks = {unit_id: self.queue.rank(unit_id) or 0 for unit_id in by_unit}
        weights = self.queue.weights([(event.rater, ranks[event.unit_id]) for event in events])
        records = [(rank, self._record(rank)) for rank in sorted(ranks.values())]
        samples = [record.sample for _, record in records]
        filled = [name for name in _FIELDS if any(getattr(sample, name) for sample in samples)]
        is_pair = any(self._other(sample) is not None for sample in samples)
        said = {
            name: read
            for name, read in _OF_RATER.items()
            if name not in ("corrected", "comment") or any(map(read, events))
        }
        heads = ["unit_id", "id", "query", "response", *(["other"] if is_pair else []), *filled]
        heads += [f"{name}{number or ''}" for name in said for number in _numbers(len(raters))]
        file = io.StringIO(newline="")
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow([*heads, "weight"])
        for position, record in records:
            own = by_unit[record.unit_id]
            response = (record.response or Response()).text
            texts = [record.unit_id, record.sample.id, record.sample.query, response]
            texts += [self._other(record.sample) or ""] if is_pair else []
            texts += [_cell(record.sample, name) for name in filled]
            for read in said.values():
                texts += [read(own[rater]) if rater in own else "" for rater in raters]
            rows.writerow([*texts, f"{weights[position]:.6g}"])
        return file.getvalue()

    def write_corrected(self) -> str:
        """The samples with the right answers that raters wrote, as JSONL that a run reads."""
        answers: dict[str, dict[str, None]] = {}
        samples: dict[str, Sample] = {}
        for event in self._standing()[0]:
            if event.answer:
                sample = self._record(self.queue.rank(event.unit_id) or 0).sample
                samples[sample.id] = sample
                answers.setdefault(sample.id, {})[event.answer] = None
        lines = []
        for name, sample in samples.items():
            row = sample.model_dump(mode="json", exclude={"suite"}, exclude_defaults=True)
            lines.append(f"{dumps(row | {'answers': list(answers[name])})}\n")
        return "".join(lines)

    def calibrate_command(self, path: str) -> str:
        """The command that compares judges with a file of these labels; "" for pairs."""
        head = self.write_csv().partition("\n")[0].split(",")
        if "other" in head:
            return ""
        fields = ("query", "response", *_FIELDS)
        shown = [name for name in head if name in fields or name.startswith("human")]
        mapped = ",".join(f"{name}={name}" for name in shown)
        command = f"memray-eval calibrate {path} --metric {self.metric} --map {mapped}"
        by_unit = _by_unit([event for event in self._standing()[0] if _says_something(event)])
        kinds = [{event.kind for event in of.values()} for of in by_unit.values()]
        skip = "" if all("label" in of for of in kinds) else " --skip-unlabelled"
        return f"{command}{skip} --judge JUDGE"

    def _next(self, rater: str, tab: str, done: set[str]) -> int | None:
        """The place in the queue of what a tab shows next, which it holds from now on."""
        now = self._clock()
        for key, (_, since) in list(self._leases.items()):
            if now - since > LEASE_S or (key[0] == rater and key[1] in done):
                del self._leases[key]
        held = {unit: of for (name, unit), (of, _) in self._leases.items() if name == rater}
        own = next((unit for unit, of in held.items() if of == tab), None)
        if own is not None:
            self._leases[rater, own] = (tab, now)
            return self.queue.rank(own)
        taken = {self.queue.rank(unit) for unit in done | held.keys()}
        position = next((n for n in self.queue.assigned(rater) if n not in taken), None)
        if position is None:
            return None
        self._leases[rater, self._record(int(position)).unit_id] = (tab, now)
        return int(position)

    def _refresh(self) -> None:
        """Reads what was added, also how the units are shared."""
        self._store.refresh()
        if self._store.queue is not self._shared_by:
            self._shared_by = self._store.queue
            self.queue = self._make_queue()

    def _make_queue(self) -> Queue:
        shared = self._shared_by or self._queue_event()
        is_by_doubt = self._store.precedes_queue
        return Queue(self._units, shared.raters, shared.overlap, shared.limit, is_by_doubt)

    def _queue_event(self, **shared: Any) -> QueueEvent:
        at = round(time.time(), 3)
        return QueueEvent(id=uuid.uuid4().hex, kind="queue", metric=self.metric, at=at, **shared)

    def _check_rater(self, name: str) -> str:
        """The rater's name. Raises ConfigError for one that the queue is not shared with."""
        with self._lock:
            self._refresh()
        name, raters = check_rater(name), self.queue.raters
        if raters and name not in raters:
            folded = {rater.casefold(): rater for rater in raters}
            close = nearest(name.casefold(), folded)
            hint = f"; did you mean {folded[close]!r}?" if close else ""
            raise ConfigError(f"this queue is of {', '.join(raters)}, and not of {name!r}{hint}")
        return name

    def _left(self, standing: Sequence[LabelEvent]) -> dict[str, int]:
        """How many of the units of each rater of the queue they have not answered."""
        left = {}
        for rater in self.queue.raters:
            own = (self.queue.rank(event.unit_id) for event in standing if event.rater == rater)
            done = [place for place in own if place is not None]
            left[rater] = int(np.setdiff1d(self.queue.assigned(rater), done).size)
        return left

    def _rank(self, unit_id: str) -> int:
        if (rank := self.queue.rank(unit_id)) is None:
            raise ConfigError(f"no unit {unit_id!r} to label in this run")
        return rank

    def _record(self, position: int) -> Record:
        number, row = self.queue.locate(position)
        record = read_record(self.folder, self._parts[number], row)
        if self.queue.rank(record.unit_id) != position:
            name = self._parts[number].name
            raise DataError(f"{name} was written again; start `memray-eval view --label` again")
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

    def _standing(self) -> tuple[list[LabelEvent], int]:
        """The events that count, and how many others are of units that this run does not have."""
        with self._lock:
            self._refresh()
            standing = self._store.standing()
        known = [event for event in standing if self.queue.rank(event.unit_id) is not None]
        return known, len(standing) - len(known)


def rubric_text(metric: str) -> str:
    """The rubric that a judge gets of a built-in metric, "" of any other."""
    definition = all_metrics().get(metric)
    messages = judge_messages(definition) if isinstance(definition, JudgedMetric) else ()
    return messages[0].content if messages else ""


def check_rater(name: str) -> str:
    """The name without space around it. Raises ConfigError for none, or one that is no name."""
    name = unicodedata.normalize("NFC", " ".join(name.split()))
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise ConfigError(
            f"a rater's name has 1 to {LONGEST_NAME} printable characters, unlike {name[:80]!r}"
        )
    return name


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


def _raters(events: Sequence[LabelEvent]) -> list[str]:
    """In the order of their first event."""
    return list(dict.fromkeys(event.rater for event in sorted(events, key=lambda event: event.at)))


def _by_unit(events: Sequence[LabelEvent]) -> dict[str, dict[str, LabelEvent]]:
    by_unit: dict[str, dict[str, LabelEvent]] = {}
    for event in events:
        by_unit.setdefault(event.unit_id, {})[event.rater] = event
    return by_unit


def _says_something(event: LabelEvent) -> bool:
    return bool(event.kind == "label" or event.answer or event.comment)


def _note_of(people: People) -> str:
    """What figures of raters who never differ do not say; "" of others."""
    if people.figures["exact"].value != 1:
        return ""
    if people.figures["kappa"].value is None:
        return f"all {people.n} shared units have the same label, so that kappa cannot be told"
    most = 1 - (1 - LEVEL) ** (1 / people.n)
    return (
        f"the raters agree on all {people.n} shared units, of which the intervals tell nothing: "
        f"they may differ on up to {most:.0%} of such units (95 %)"
    )


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
