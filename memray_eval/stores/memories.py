"""Conversations in a store: written once, session by session, searched once a question, and both
resumed, by a journal of each partition in the run's folder."""

import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from threading import Lock
from typing import Any, TypeVar

from memray_eval.benchmarks.conversations import Conversation, evidence_of, from_context, word_stems
from memray_eval.config.environment import required_key
from memray_eval.errors import (
    ConfigError,
    EvalError,
    StoreDown,
    StoreError,
    StoreLost,
    StoreSlow,
    describe_error,
)
from memray_eval.own_code import OwnCodeTooSlow, guarded
from memray_eval.stores.port import (
    Entry,
    JsonLines,
    Sources,
    Store,
    build_store,
    is_own,
    read_entries,
    read_folder,
)
from memray_eval.types import Candidate, Memory, Prompt, Record, Request, Response, Sample
from memray_eval.types.responses import TEMPLATE_NAME
from memray_eval.types.samples import ASKED_BY, MEMORY, WRITES

logger = logging.getLogger(__name__)

T = TypeVar("T")
STORES = "stores"  # the folder of a run's partitions
RECALLED = "recalled"  # of a sample's metadata on its way: what was found, by candidate and epoch
EVIDENCE_TEXTS = "evidence_texts"  # of its notes, if the model searches itself
POLL_S, LONGEST_POLL_S = 0.05, 5.0
CHARACTERS = 4  # per token, if nobody counts them
_WRITTEN = {"url", "options", "tools"}  # with its name, the identity of a written memory
_LOCKS = dict[int, Lock]()  # of stores that one thread may call at a time
_PROCESS = f"{os.getpid()}-{secrets.token_hex(4)}"


def partition_name(run: str, sample: Sample, candidate: Candidate, epoch: int) -> str:
    """RUN/CONVERSATION/EPOCH/STORE. A question whose model may write has its own, and so has a
    conversation up to another place: what was said after a question is not found for it."""
    assert candidate.memory is not None
    memory = candidate.memory
    whose = str(sample.metadata.get("conversation") or sample.id)
    about = memory.name + memory.model_dump_json(include=_WRITTEN)
    if memory.tools:
        whose, about = sample.id, about + candidate.name
    else:
        about += sample.context or ""
    digest = blake2b(about.encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()
    return f"{partition_of(run, whose, epoch)}/{digest}"


def writes_to(memory: Mapping[str, Any], other: Memory) -> bool:
    """True if two candidates' memories are the same store, asked in the same way."""
    own = Memory.model_validate(memory)
    is_same = own.model_dump(include=_WRITTEN) == other.model_dump(include=_WRITTEN)
    return is_same and own.name == other.name


def is_store_error(error: str | None) -> bool:
    """True if the error of a record is its store's."""
    kinds: tuple[type, ...] = (StoreError, *StoreError.__subclasses__())
    return (error or "").partition(":")[0] in {kind.__name__ for kind in kinds}


class Partition:
    """A partition of a store, and what the run has done with it, which each process logs in its own
    file. Its methods raise StoreError."""

    def __init__(
        self, name: str, memory: Memory, folder: str, sources: Sources, at_once: int = 1
    ) -> None:
        self.name, self.memory = name, memory
        stores = f"{folder.rstrip('/')}/{STORES}"
        self._store: Store = build_store(memory, stores, sources.get(memory.name))
        if hold := getattr(self._store, "hold", None):
            hold(2 * at_once)  # those asked now, and those that wait
        is_concurrent = getattr(self._store, "concurrent", False)
        self._calls = None if is_concurrent else _LOCKS.setdefault(id(self._store), Lock())
        self._filling, self._noting = Lock(), Lock()
        own_folder = f"{stores}/{blake2b(name.encode(), digest_size=8).hexdigest()}"
        self._journal = JsonLines(f"{own_folder}/{_PROCESS}.jsonl")
        self._is_open = self._is_ready = self._is_checked = False
        self.n_changes = 0  # by answers, since it was filled
        self._begun, self._written, self._held_sessions = set[str](), set[str](), set[str]()
        self._waits, self._searched = set[str](), dict[str, list[Entry]]()
        self._failure: StoreError | None = None
        past = [event for events in read_folder(own_folder).values() for event in events]
        for event in sorted(past, key=lambda event: float(event["at"])):
            self._replay(event)
        self._is_checked = not self._is_open
        self._pending().update(self._waits)

    def fill(self, sessions: Conversation) -> None:
        """Writes the unwritten sessions of a conversation, and waits until they can be found. After
        an error it does not try again in this session of the run."""
        with self._filling:
            if self._failure is not None:
                raise self._failure
            try:
                if self._is_open and self.n_changes:  # by an answer that is asked for again
                    self._clear()
                self._open()
                for session in sessions:
                    if session.id not in self._written:
                        self._ingest(session)
                if not self._is_ready:
                    self._wait()
            except StoreError as error:
                self._failure = error
                raise

    def search(self, unit: str, query: str) -> list[Entry]:
        """The store's entries for a query; if the unit was searched for before, the same ones."""
        if unit not in self._searched:
            entries, seconds, spent = self._timed(
                lambda: read_entries(self._store.search(self.name, query, self.memory.k))
            )
            rows = [[*entry] for entry in entries[: self.memory.k]]
            self._note("search", unit=unit, s=seconds, entries=rows, **spent)
        return self._searched[unit]

    def answer(self, unit: str, question: str) -> str:
        """The store's own answer. Raises StoreError if it gives none."""
        ask = getattr(self._store, "answer", None)
        if ask is None:
            raise StoreError(f"memory.answers: {self.memory.label} answers no question itself")
        text, seconds, spent = self._timed(lambda: ask(self.name, question))
        self._note("answer", unit=unit, s=seconds, **spent)
        return str(text)

    def entries(self) -> list[Entry]:
        """All that it holds."""
        return read_entries(self._call(lambda: self._store.entries(self.name)))

    def call_tool(
        self,
        unit: str,
        name: str,
        call: Callable[[Store], T],
        about: Callable[[T], dict[str, Any]] = lambda result: {},
        is_write: bool = False,
    ) -> T:
        """The result of a model's tool call, logged with what `about` says of it. What is filled
        after a write is written again."""
        if is_write:
            self._note("change", unit=unit)
        result, seconds, spent = self._timed(lambda: call(self._store))
        self._note("tool", unit=unit, tool=name, s=seconds, **about(result), **spent)
        return result

    def close(self) -> None:
        """Deletes it, if this run made it."""
        if self._is_open:
            self._call(lambda: self._store.delete(self.name))
            self._note("close")

    def _open(self) -> None:
        if not self._is_open:
            if make := getattr(self._store, "open", None):
                self._call(lambda: make(self.name))
            if held := self.entries():
                raise StoreError(
                    f"the partition {self.name} holds {len(held)} entries that this run did not "
                    "write: it is left as it is"
                )
            self._note("open", memory=self.memory.model_dump(mode="json"), partition=self.name)
        elif not self._is_checked and self._held_sessions:  # an earlier session's
            lost = self._held_sessions - {entry.session for entry in self.entries()}
            if lost:
                self._clear()
                raise StoreLost(
                    f"the store has lost {', '.join(sorted(lost))}; "
                    "the conversation is written again when the run is resumed"
                )
        self._is_checked = True

    def _ingest(self, session: Any) -> None:
        text = sum(len(turn.text) for turn in session.turns)
        if session.id in self._begun:  # an error or a kill came: a part of it may be there
            part = [entry.id for entry in self.entries() if entry.session == session.id]
            if part:  # without ids it would be the partition
                self._call(lambda: self._store.delete(self.name, part))
        self._note("begin", session=session.id)
        _, seconds, spent = self._timed(lambda: self._store.ingest(self.name, session))
        spent.setdefault("estimated", text // CHARACTERS)
        waits = sorted(self._pending())
        self._note("ingest", session=session.id, s=seconds, waits=waits, **spent)

    def _clear(self) -> None:
        """Deletes what was written: it is all written again."""
        self._call(lambda: self._store.delete(self.name))
        self._note("lost")

    def _pending(self) -> set[str]:
        """What `ready` waits for, if the store says so."""
        return getattr(self._store, "pending", lambda partition: set[str]())(self.name)

    def _is_found(self) -> bool:
        is_ready = getattr(self._store, "ready", lambda partition: True)
        try:
            return self._call(lambda: is_ready(self.name))
        except StoreLost:
            self._clear()
            raise

    def _wait(self) -> None:
        started, pause = time.monotonic(), POLL_S
        while not self._is_found():
            if (waited := time.monotonic() - started) + pause > self.memory.ready_s:
                raise StoreSlow(
                    f"what was written could not be found within {waited:.0f} s "
                    f"(memory.ready_s is {self.memory.ready_s:g})"
                )
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_POLL_S)
        sessions = sorted({entry.session for entry in self.entries()})
        self._note("ready", s=time.monotonic() - started, sessions=sessions)

    def _timed(self, call: Callable[[], T]) -> tuple[T, float, dict[str, Any]]:
        """A call's result, its seconds, and the store's spending on it, as far as reported."""

        def measured() -> tuple[T, float, dict[str, Any]]:  # alone, unless it is concurrent
            before, started = self._spent(), time.perf_counter()
            result = call()
            seconds, after = time.perf_counter() - started, self._spent()
            return result, seconds, {name: after[name] - before.get(name, 0) for name in after}

        return self._call(measured)

    def _spent(self) -> dict[str, float]:
        spent = {name: getattr(self._store, name, None) for name in ("tokens", "usd")}
        return {name: float(value) for name, value in spent.items() if value is not None}

    def _call(self, call: Callable[[], T]) -> T:
        run = call
        if is_own(self.memory):
            what, limit = f"store {self.memory.label}", self.memory.timeout_s
            run = guarded(call, what, limit, "memory.timeout_s")
        try:
            if self._calls is None:
                return run()
            with self._calls:
                return run()
        except StoreError:
            raise
        except OwnCodeTooSlow as error:
            raise StoreSlow(f"{self.memory.label}: {error}") from None
        except OSError as error:
            raise StoreDown(f"{self.memory.label}: {describe_error(error)}") from error
        except Exception as error:
            raise StoreError(f"{self.memory.label}: {describe_error(error)}") from error

    def _note(self, what: str, **about: Any) -> None:
        event = {"event": what, "at": time.time(), **about}
        with self._noting:
            self._journal.append([event])
            self._replay(event)

    def _replay(self, event: Mapping[str, Any]) -> None:
        what, session = event["event"], event.get("session", "")
        if what == "open":
            self._is_open = True
        elif what == "begin":
            self._begun.add(session)
            self._is_ready = False
        elif what == "ingest":
            self._written.add(session)
            self._waits.update(event.get("waits", ()))
        elif what == "ready":
            self._is_ready, self._held_sessions = True, {*event["sessions"]} - {""}
            self._waits.clear()
        elif what == "search":
            self._searched[event["unit"]] = [Entry(*entry) for entry in event["entries"]]
        elif what == "change":
            self.n_changes += 1
        elif what in ("close", "lost"):
            self._is_open, self._is_ready, self.n_changes = False, False, 0
            self._begun, self._written, self._held_sessions = set(), set(), set()
            self._waits.clear()


class Memories:
    """The partitions of a run, in one process and session, of which so many are asked at once."""

    def __init__(self, folder: str, sources: Sources, at_once: int) -> None:
        self._folder, self._sources, self._at_once = folder.rstrip("/"), sources, at_once
        self._partitions = dict[str, Partition]()
        self._opening = Lock()

    def partition(self, sample: Sample, candidate: Candidate, epoch: int) -> Partition:
        run = self._folder.rpartition("/")[2]
        return self._partition(partition_name(run, sample, candidate, epoch), candidate)

    def _partition(self, name: str, candidate: Candidate) -> Partition:
        assert candidate.memory is not None
        with self._opening:
            if name not in self._partitions:
                whose = self._folder, self._sources, self._at_once
                self._partitions[name] = Partition(name, candidate.memory, *whose)
            return self._partitions[name]

    def recall(self, sample: Sample, record: Record) -> dict[str, Any]:
        """The entries that the store of the record's candidate returns for the sample's question,
        once it has the conversation; or its error."""
        try:
            return self._recall(sample, record)
        except Exception as error:
            if not isinstance(error, StoreError):
                logger.exception("a store failed")
            return {"error": describe_error(error)}

    def _recall(self, sample: Sample, record: Record) -> dict[str, Any]:
        if sample.context is None:
            raise StoreError("the sample has no conversation to write to the store")
        candidate, unit = record.candidate, record.unit_id
        assert candidate.memory is not None
        sessions = from_context(sample.context)
        partition = self.partition(sample, candidate, record.epoch)
        partition.fill(sessions)
        owner = partition
        if other := sample.metadata.get(ASKED_BY):
            owner = self._partition(f"{partition.name}/{other}", candidate)
            owner.fill(())
        if candidate.memory.answers:
            return {"answer": owner.answer(unit, sample.query)}
        if candidate.memory.tools:
            wanted = [[*piece] for piece in evidence_texts(sample, sessions)]
            return {MEMORY: {"tools": candidate.memory.tools, EVIDENCE_TEXTS: wanted}}
        entries = owner.search(unit, sample.query)
        notes: dict[str, Any] = {
            "found": find_pieces(sample, sessions, entries),
            "complete": completeness(sample, entries),
            "returned": len(entries),
        }
        if sample.metadata.get(WRITES) is not None:
            notes["holds"] = [entry.text for entry in owner.entries()]
            notes["texts"] = [entry.text for entry in entries]
        return {"retrieved": [entry._asdict() for entry in entries], MEMORY: notes}


def key_of(candidate: Candidate, epoch: int) -> str:
    """The key, in a sample, of what was recalled for a candidate and an epoch."""
    return f"{candidate.name}#{epoch}"


def take_recalled(record: Record, sample: Sample) -> tuple[Record, Sample]:
    """The record and the sample that its prompt is made of, with what was recalled for it. A record
    that has a response then, the store's answer or its error, is not asked."""
    recalled = sample.metadata.get(RECALLED)
    if recalled is None:
        return record, sample
    metadata = {key: value for key, value in sample.metadata.items() if key != RECALLED}
    own = recalled.get(key_of(record.candidate, record.epoch), {})
    metadata |= {MEMORY: own[MEMORY]} if MEMORY in own else {}
    bare = record.sample.model_copy(update={"metadata": metadata})
    update: dict[str, Any] = {"sample": bare}
    if "error" in own:
        update["response"] = Response(error=own["error"])
    elif "answer" in own:
        update["response"] = Response(text=own["answer"]).with_cause()
    shown = {**metadata, "retrieved": own["retrieved"]} if "retrieved" in own else metadata
    return record.model_copy(update=update), sample.model_copy(update={"metadata": shown})


def close_stores(folder: str, sources: Sources) -> list[str]:
    """Deletes the partitions that an ended run made. Returns why some are left."""
    opened = dict[str, Memory]()
    for events in read_folder(f"{folder.rstrip('/')}/{STORES}").values():
        for event in events:
            if event["event"] == "open":
                opened[event["partition"]] = Memory.model_validate(event["memory"])
    left = list[str]()
    for name, memory in opened.items():
        try:
            Partition(name, memory, folder, sources).close()
        except EvalError as error:
            left.append(f"{name}: {error}")
    return left


HOLDS = 0.5  # of the words of a piece of evidence, in one entry: that entry tells it


def words_of(text: str) -> set[str]:
    """The stems of a text's words, without stopwords; May is a month."""
    return {*word_stems(text), *(["may"] if "May" in text else [])}


def find_pieces(sample: Sample, sessions: Conversation, entries: Sequence[Entry]) -> list[int]:
    """The pieces of the sample's evidence, by their numbers, that an entry states: one with the id
    of the turn, or with HOLDS of its words. Any entry of a session states a piece that is the whole
    session."""
    return [
        number
        for number, piece in enumerate(evidence_texts(sample, sessions))
        if tells_piece(*piece, entries)
    ]


def evidence_texts(sample: Sample, sessions: Conversation) -> list[tuple[str, str, str]]:
    """The pieces of the sample's evidence: turn ("": a whole session), session, and text."""
    texts = {turn.id: turn.text for session in sessions for turn in session.turns}
    texts |= {session.id: " ".join(turn.text for turn in session.turns) for session in sessions}
    return [(turn, part, texts.get(turn or part, "")) for turn, part in evidence_of(sample)]


def tells_piece(turn: str, session: str, text: str, entries: Sequence[Entry]) -> bool:
    """True if an entry states a piece of evidence."""
    wanted = words_of(text)
    return any(
        (entry.id == turn if turn else entry.session == session)
        or (wanted and len(wanted & words_of(entry.text)) / len(wanted) >= HOLDS)
        for entry in entries
    )


def completeness(sample: Sample, entries: Sequence[Entry]) -> float | None:
    """The share of the right answer's words that are in the entries or their dates, for the answer
    with most; None for a question without an answer in the conversation."""
    if sample.metadata.get("unanswerable") is True:
        return None
    words = words_of("\n".join(f"{entry.date} {entry.text}" for entry in entries))
    wanted = [stems for answer in sample.answers if (stems := words_of(answer))]
    return max((len(answer & words) / len(answer) for answer in wanted), default=None)


def partition_of(run: str, sample_id: str, epoch: int) -> str:
    """The partition that only a sample's answer of that number may write to: RUN/SAMPLE/EPOCH."""
    return f"{run}/{sample_id}/{epoch}"


def is_identified(candidate: Candidate) -> bool:
    """True if its request depends on the user: a function's may, and so may what a tool returns."""
    has_tools = candidate.memory is not None and candidate.memory.tools > 0
    if candidate.user or candidate.session or candidate.headers or has_tools:
        return True
    return candidate.backend == "code" or TEMPLATE_NAME.search(str(candidate.extra)) is not None


def identify(
    prompt: Prompt, candidate: Candidate, sample: Sample, epoch: int, run: str
) -> tuple[Prompt, Candidate]:
    """The prompt with its Request, and the candidate with its `extra` filled in. Raises ConfigError
    for a field that the sample lacks, or a variable that is not set."""
    values = {"run": run, "candidate": candidate.name, "epoch": str(epoch)}
    values["partition"] = partition_of(run, sample.id, epoch)

    def value(match: re.Match[str]) -> str:
        if match[3]:
            return values[match[3]]
        if match[1] == "env":
            return required_key(match[2], "a header")
        field = sample.metadata.get(match[2], getattr(sample, match[2], None))
        if not isinstance(field, str | int | float) or field == "":
            raise ConfigError(f"the sample has no {match[2]!r}, which {match[0]} names")
        return str(field)

    def fill(part: Any) -> Any:
        if isinstance(part, str):
            return TEMPLATE_NAME.sub(value, part)
        if isinstance(part, Mapping):
            return {key: fill(inner) for key, inner in part.items()}
        return [fill(inner) for inner in part] if isinstance(part, list | tuple) else part

    request = Request(
        sample=sample.model_copy(update={"context": None, "answers": ()}),
        user=fill(candidate.user or ""),
        session=fill(candidate.session or ""),
        epoch=epoch,
        headers=fill(candidate.headers),
    )
    filled = candidate.model_copy(update={"extra": fill(candidate.extra)})
    return prompt.model_copy(update={"request": request}), filled


def check_identity(candidate: Candidate) -> None:
    """Raises ConfigError for a variable of the headers that is not set."""
    for name in re.findall(r"\{env\.(\w+)\}", " ".join(candidate.headers.values())):
        required_key(name, f"a header of candidate {candidate.name!r}")
