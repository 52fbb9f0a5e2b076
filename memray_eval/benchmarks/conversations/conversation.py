"""A conversation in sessions and turns, as a sample's context and as published files have it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from pyarrow import fs

from memray_eval.config.sections import EmbeddingConfig
from memray_eval.errors import ConfigError, reason_of
from memray_eval.ports import FloatArray, PublishedFile, PublishedQuestion
from memray_eval.storage.paths import locate, open_reader
from memray_eval.text_processing.matching import STOPWORDS, stem
from memray_eval.types import Frozen, Retrieval

_KEPT = 2  # conversations in memory; questions on one follow each other


class SpokenTurn(NamedTuple):
    """A speaker's words. `id` is unique in its conversation."""

    id: str
    speaker: str
    text: str


class Session(NamedTuple):
    """Turns of one sitting, with its date in the benchmark's own words ("" if it names none)."""

    id: str
    date: str
    turns: tuple[SpokenTurn, ...]


Conversation: TypeAlias = tuple[Session, ...]
Fault: TypeAlias = tuple[str, str]  # a field, and what is wrong with it


def to_context(sessions: Iterable[Session]) -> str:
    """A sample's context: the conversation as JSON, and nothing else of its record."""
    return json.dumps(
        [[part.id, part.date, [list(turn) for turn in part.turns]] for part in sessions],
        ensure_ascii=False,
        separators=(",", ":"),
    )


@lru_cache(_KEPT)
def from_context(context: str) -> Conversation:
    """The conversation that a context encodes. Raises ValueError if it encodes none."""
    try:
        return tuple(
            Session(str(name), str(date), tuple(SpokenTurn(*map(str, turn)) for turn in turns))
            for name, date, turns in json.loads(context)
        )
    except (TypeError, ValueError):
        raise ValueError(
            "context: is no conversation; it is the JSON of a list of sessions "
            "[id, date, [[turn id, speaker, text], ...]]"
        ) from None


def check_sessions(sessions: Sequence[Session]) -> Conversation:
    """The sessions that have turns. Raises ValueError for none, and for a repeated id."""
    conversation = tuple(part for part in sessions if part.turns)
    if not conversation:
        raise ValueError("the conversation has no sessions with turns")
    times = Counter(turn.id for part in conversation for turn in part.turns)
    if repeated := next((id_ for id_, n in times.items() if n > 1), None):
        raise ValueError(f"the conversation has two turns with the id {repeated!r}")
    return conversation


def read_turn(
    raw: Any, id_: str, speaker_field: str = "role", text_field: str = "content"
) -> SpokenTurn:
    """A published turn. Raises ValueError if speaker or text are no text."""
    if not isinstance(raw, dict):
        raise ValueError(f"turn {id_} is no object")
    speaker, text = raw.get(speaker_field), raw.get(text_field)
    if not isinstance(speaker, str) or not isinstance(text, str):
        which = speaker_field if not isinstance(speaker, str) else text_field
        raise ValueError(f"turn {id_}: {which} is no text")
    return SpokenTurn(id_, speaker, text)


def find_json(path: str) -> list[PublishedFile] | None:
    """The JSON file at a path, or those of a folder without other data; None if there are none."""
    if path.endswith(".json"):
        return [PublishedFile(path, "json")]
    names = names_in(path)
    files = [name for name in names if name.endswith(".json")]
    others = any(name.endswith((".jsonl", ".parquet", ".csv")) for name in names)
    if not files or others or "manifest.json" in names:
        return None
    return [PublishedFile(f"{path.rstrip('/')}/{name}", "json") for name in files]


def find_named(path: str, is_wanted: Callable[[str], bool]) -> list[str]:
    """The paths of a folder's files whose names are wanted, or the path of a file that is."""
    folder, names = path.rstrip("/"), names_in(path)
    if not names and is_wanted(folder.rpartition("/")[2]):
        return [folder]
    return [f"{folder}/{name}" for name in names if is_wanted(name)]


def names_in(folder: str) -> list[str]:
    """The names of what is in a folder, sorted; empty if there is no such folder."""
    filesystem, inner = locate(folder)
    if filesystem.get_file_info(inner).type != fs.FileType.Directory:
        return []
    return sorted(str(info.base_name) for info in filesystem.get_file_info(fs.FileSelector(inner)))


def find_lacking(raw: Mapping[str, Any], names: Collection[str]) -> list[Fault]:
    """A fault for each field that a record lacks."""
    return [(name, "missing") for name in names if raw.get(name) is None]


def require(raw: Any, kind: str, names: Collection[str]) -> None:
    """Raises ValueError that says which of the fields an item lacks that every `kind` has."""
    if not isinstance(raw, Mapping):
        raise ValueError(f"no {kind}: it is {type(raw).__name__}, not an object")
    if missing := [name for name in names if name not in raw]:
        raise ValueError(
            f"no {kind}: it lacks {', '.join(missing)}; has the file another version or benchmark?"
        )


def to_question(
    where: str,
    fields: Mapping[str, Any],
    metadata: Mapping[str, Any],
    faults: Iterable[Fault],
    raw: Mapping[str, Any],
) -> PublishedQuestion:
    """A question with its metadata, and with what a memory system retrieved, by `raw`."""
    about = {**metadata, **{name: raw[name] for name in ("retrieved",) if name in raw}}
    return PublishedQuestion(where, {**fields, "metadata": about}, tuple(faults))


def as_text(answer: Any) -> str | None:
    """An answer that is a text or a number, as text; None for anything else."""
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        return None
    return str(answer).strip() or None


CITATION = "WRONG_CITATION"  # its evidence is wrong, and its answer right
# The conversations of locomo10.json in their order, by which the audit numbers them
LOCOMO = ("conv-26", "conv-30", "conv-41", "conv-42", "conv-43", "conv-44", "conv-47", "conv-48",
          "conv-49", "conv-50")  # fmt: skip
_AUDITED = re.compile(r"locomo_(\d+)_qa(\d+)")


class Erratum(Frozen):
    """An error of a published question. `golden` is the answer that its benchmark has."""

    question_id: str
    error_type: str
    golden: str
    correct: str

    @property
    def is_answer_wrong(self) -> bool:
        return self.error_type != CITATION


def sample_id(question_id: str) -> str:
    """The id of our sample for a question as the audit numbers it: locomo_0_qa1 is conv-26:qa1."""
    match = _AUDITED.fullmatch(question_id)
    if match is None or int(match[1]) >= len(LOCOMO):
        return question_id
    return f"{LOCOMO[int(match[1])]}:qa{int(match[2])}"


def read_errata(path: str) -> Mapping[str, Erratum]:
    """The errata by the ids of samples. Raises ConfigError that names file, entry and field."""
    try:
        with open_reader(*locate(path)) as file:
            entries = json.loads(file.read().decode("utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"errata: no file {path}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"errata: cannot read {path}: {reason_of(error)}") from None
    if not isinstance(entries, list) or not entries:
        raise ConfigError(f"errata: {path} must be a list of objects with question_id")
    errata: dict[str, Erratum] = {}
    for number, raw in enumerate(entries, 1):
        where = f"errata: {path}, entry {number}:"
        if not isinstance(raw, Mapping):
            raise ConfigError(f"{where} must be an object")
        for name in ("question_id", "error_type"):
            if not isinstance(raw.get(name), str) or not raw[name]:
                raise ConfigError(f"{where} {name} is missing, or no text")
        question_id = raw["question_id"]
        answers = (raw.get(f"{name}_answer") for name in ("golden", "correct"))
        golden, correct = ("" if answer is None else str(answer) for answer in answers)
        if (key := sample_id(question_id)) in errata:
            raise ConfigError(f"{where} {question_id} appears twice")
        errata[key] = Erratum(
            question_id=question_id,
            error_type=raw["error_type"].upper(),
            golden=golden,
            correct=correct,
        )
    return errata


_WORD = re.compile(r"\w+")
Rank = Callable[[str], FloatArray]  # a question -> one score a unit


def retrieve(context: str, query: str, how: Retrieval) -> list[Session]:
    """The `how.k` units that rank highest, best first; of equals the earlier one. A turn comes as
    its session with this turn alone. Raises EmbeddingError."""
    units, rank = _index(context, how.by, how.unit, how.model)
    order = np.argsort(-rank(query), kind="stable")[: how.k]
    return [units[number] for number in order]


@lru_cache(_KEPT)
def _index(context: str, by: str, unit: str, model: str) -> tuple[Conversation, Rank]:
    """The units of a conversation, each a session with some of its turns, and how they rank."""
    sessions = from_context(context)
    if unit == "turn":
        units = tuple(part._replace(turns=(turn,)) for part in sessions for turn in part.turns)
    else:
        units = sessions
    texts = [
        "\n".join([part.date, *(f"{turn.speaker}: {turn.text}" for turn in part.turns)])
        for part in units
    ]
    return (units, rank_by_words(texts) if by == "bm25" else rank_by_vectors(texts, model))


def rank_by_words(texts: Sequence[str]) -> Rank:
    """BM25 as Lucene has it (k1 1.5, b 0.75), over stems without stopwords, by bm25s."""
    import bm25s  # scipy and numba, if they are installed: a second

    words = [word_stems(text) for text in texts]
    if not any(words):
        return lambda query: np.zeros(len(texts))
    index = bm25s.BM25(method="lucene", k1=1.5, b=0.75, backend="numpy")
    index.index(words, show_progress=False)
    return lambda query: np.asarray(index.get_scores(word_stems(query)), dtype=np.float64)


def word_stems(text: str) -> list[str]:
    return [stem(word) for word in _WORD.findall(text.casefold()) if word not in STOPWORDS]


def rank_by_vectors(texts: Sequence[str], model: str) -> Rank:
    """Cosine by a local embedding model. Raises EmbeddingError."""
    encode = load_encoder(model)
    vectors = encode(texts)
    return lambda query: np.asarray(vectors @ encode([query])[0])


def load_encoder(model: str) -> Callable[[Sequence[str]], FloatArray]:
    """A local embedding model, loaded once a process, by any thread. Raises EmbeddingError."""
    from memray_eval.models.embeddings import LocalEmbedder  # seconds to import

    return LocalEmbedder(EmbeddingConfig(model=model)).encode
