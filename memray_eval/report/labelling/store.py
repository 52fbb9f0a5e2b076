"""The labels of a run, in labels.jsonl of its folder: an event a line, only ever added to, flushed
while the file is locked. A line that a crash cut in two is skipped."""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from memray_eval.errors import ConfigError, reason_of
from memray_eval.types import Frozen, Name

FILE = "labels.jsonl"
LONGEST_ANSWER = 5000  # characters; two of them and their escapes fit a request
_Text = Field(min_length=1, max_length=64)

logger = logging.getLogger(__name__)


class RaterRequest(Frozen):
    """A rater, in a tab that named itself."""

    rater: str = Field(max_length=200)
    tab: str = _Text


class LabelRequest(RaterRequest):
    """A rater's answer on a unit, None to pass it over."""

    id: str = _Text
    unit: str = _Text
    value: float | None = Field(allow_inf_nan=False)
    aided: bool = False
    answer: str = Field("", max_length=LONGEST_ANSWER)
    comment: str = Field("", max_length=LONGEST_ANSWER)


class UndoRequest(RaterRequest):
    id: str = _Text


class LabelEvent(Frozen):
    """An action of a rater; `undo` takes back the event `undoes`. `id` is the browser's: sent
    twice, it counts once. `aided`: the judge's quotes were shown. `at` is in epoch seconds."""

    id: Name = Field(max_length=64)
    kind: Literal["label", "skip", "undo"]
    metric: Name
    rater: Name
    unit_id: str = ""
    value: float | None = None
    undoes: str = ""
    tab: str = Field("", max_length=64)
    aided: bool = False
    answer: str = ""
    comment: str = ""
    at: float = 0.0


class QueueEvent(Frozen):
    """How units are shared from here on: each is one rater's, or two's at the chance `overlap`;
    anyone's without `raters`. The queue ends after `limit` units. `at` is in epoch seconds."""

    id: Name = Field(max_length=64)
    kind: Literal["queue"]
    metric: Name
    raters: tuple[Name, ...] = ()
    overlap: float = Field(1.0, ge=0, le=1)
    limit: int | None = Field(None, ge=1)
    at: float = 0.0


Event = Annotated[LabelEvent | QueueEvent, Field(discriminator="kind")]
_EVENT: TypeAdapter[LabelEvent | QueueEvent] = TypeAdapter(Event)


class LabelStore:
    """The events of one metric, in a file that several processes may share. Not thread-safe."""

    def __init__(self, folder: Path, metric: str) -> None:
        self._path, self._metric = folder / FILE, metric
        self._read_up_to = 0
        self._ids: set[str] = set()
        self._undone: set[str] = set()
        self.events: list[LabelEvent] = []
        self.queue: QueueEvent | None = None
        self.precedes_queue = False  # the first label is older than the events of queues
        self.refresh()

    def add(self, event: LabelEvent | QueueEvent) -> None:
        """Adds a new event to the file. Raises ConfigError if it cannot be written."""
        self.refresh()
        if event.id in self._ids:
            return
        line = event.model_dump_json(exclude_defaults=True).encode("utf-8", "replace") + b"\n"
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                size = os.fstat(file).st_size
                if size and os.pread(file, 1, size - 1) != b"\n":
                    line = b"\n" + line  # what a crash cut off stays a line of its own
                written = os.write(file, line)
                if written < len(line):
                    raise OSError(f"only {written} of {len(line)} bytes were written")
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise ConfigError(
                f"the label cannot be written to {self._path}: {reason_of(error)}; "
                "nothing was kept of it"
            ) from None
        self.refresh()

    def refresh(self) -> None:
        """Reads what was added since. Raises ConfigError for an unreadable file."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read_up_to)
                data = file.read()
        except FileNotFoundError:
            return
        except OSError as error:
            raise ConfigError(f"{self._path} cannot be read: {reason_of(error)}") from None
        lines = data[: data.rfind(b"\n") + 1]
        self._read_up_to += len(lines)
        for line in lines.splitlines():
            if line.strip():
                self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            event = _EVENT.validate_json(line)
        except ValidationError as error:
            logger.warning("%s: a line is no label: %s", self._path, error)
            return
        if event.metric != self._metric or event.id in self._ids:
            return
        self._ids.add(event.id)
        if isinstance(event, QueueEvent):
            self.queue = event
            return
        self.precedes_queue |= self.queue is None
        self.events.append(event)
        if event.kind == "undo":
            self._undone.add(event.undoes)

    def standing(self) -> list[LabelEvent]:
        """Labels and skips that count, in order: not undone, each rater's last of a unit."""
        last: dict[tuple[str, str], LabelEvent] = {}
        for event in self.events:
            if event.kind != "undo" and event.id not in self._undone:
                last.pop((event.rater, event.unit_id), None)
                last[event.rater, event.unit_id] = event
        return list(last.values())
