"""What the benchmarks of conversation memory share: a conversation in sessions and turns, as a
sample's context and as published files have it; the part of it that a candidate is shown, and the
prompt that shows it. That is by arm: `full`, all of it; `oracle`, the sessions that hold the
evidence; `none`; `retrieved`, what a retriever of ours finds, or what the row says that a memory
system returned."""

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
from memray_eval.types import Candidate, Frozen, Message, Passage, Prompt, Retrieval, Sample

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
    """The conversation that a context encodes. Raises ValueError if it encodes none, and for a
    repeated id."""
    try:
        conversation = tuple(
            Session(str(name), str(date), tuple(SpokenTurn(*map(str, turn)) for turn in turns))
            for name, date, turns in json.loads(context)
        )
    except (TypeError, ValueError):
        raise ValueError(
            "context: is no conversation; it is the JSON of a list of sessions "
            "[id, date, [[turn id, speaker, text], ...]]"
        ) from None
    return _with_own_ids(conversation)


def check_sessions(sessions: Sequence[Session]) -> Conversation:
    """The sessions that have turns. Raises ValueError for none, and for a repeated id."""
    conversation = tuple(part for part in sessions if part.turns)
    if not conversation:
        raise ValueError("the conversation has no sessions with turns")
    return _with_own_ids(conversation)


def _with_own_ids(conversation: Conversation) -> Conversation:
    turns = Counter(turn.id for part in conversation for turn in part.turns)
    for what, times in (("turns", turns), ("sessions", Counter(part.id for part in conversation))):
        if (repeated := next((id_ for id_, n in times.items() if n > 1), None)) is not None:
            raise ValueError(
                f"the conversation has two {what} with the id {repeated!r}: it tells them apart by "
                "ids, as s2:1 for the first turn of s2"
            )
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


EVIDENCE = "evidence"  # of a sample's metadata: pairs of a turn and its session; "" for no turn
RETRIEVED = "retrieved"
NOTHING = "(No earlier conversation is shown.)"


class Shown(NamedTuple):
    """Sessions to show, in the order of time, and what was retrieved, best first, if the arm does
    so: ids of turns or sessions, "" for a text without one."""

    sessions: Sequence[Session]
    retrieved: list[str] | None = None


def choose(sample: Sample, candidate: Candidate) -> Shown:
    """The part that the candidate's arm shows. Raises ValueError if the sample lacks it."""
    arm = candidate.context or ("retrieved" if candidate.memory is not None else "full")
    if arm == "none":
        return Shown(())
    if arm == "retrieved" and (own := sample.metadata.get(RETRIEVED)) is not None:
        return _show_own(sample, own)
    if candidate.memory is not None:  # its tools show it, if anything
        return Shown((), [])
    if sample.context is None:
        raise ValueError(f"the sample has no context, which context: {arm} shows")
    sessions = from_context(sample.context)
    if arm == "full":
        return Shown(sessions)
    if arm == "oracle":
        wanted = {name for piece in evidence_of(sample) for name in piece}
        held = (part for part in sessions if wanted & {part.id, *(turn.id for turn in part.turns)})
        return Shown([*held])
    how = candidate.retrieved or Retrieval()
    units = retrieve(sample.context, sample.query, how)
    ids = [part.turns[0].id if how.unit == "turn" else part.id for part in units]
    kept = {turn.id for part in units for turn in part.turns}
    turns = [tuple(turn for turn in part.turns if turn.id in kept) for part in sessions]
    parts = zip(sessions, turns, strict=True)
    return Shown([part._replace(turns=shown) for part, shown in parts if shown], ids)


def evidence_of(sample: Sample) -> list[tuple[str, str]]:
    """The evidence of a sample: (turn, session) pairs; the turn of a whole session is "", and the
    session of a text alone. Raises ValueError."""
    listed = sample.metadata.get(EVIDENCE) or []
    if not isinstance(listed, list | tuple):
        raise ValueError(
            f"metadata.evidence: must be a list of [turn, session], not {listed!r:.60}"
        )
    pairs = []
    for piece in listed:
        pair = (piece, "") if isinstance(piece, str) else piece
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise ValueError(f"metadata.evidence: {piece!r:.60} is no [turn, session]")
        pairs.append((str(pair[0]), str(pair[1])))
    return pairs


def retrieved_ids(retrieved: Any) -> list[str]:
    """The ids in what a memory system returned, best first, "" for none. Raises ValueError."""
    if not isinstance(retrieved, list | tuple):
        raise ValueError("retrieved: must be a list of ids, or of objects with text and id")
    ids = []
    for item in retrieved:
        if isinstance(item, str):
            ids.append("" if any(map(str.isspace, item)) else item)
        elif isinstance(item, Mapping):
            ids.append(str(item.get("id") or item.get("session") or ""))
        else:
            raise ValueError(f"retrieved: {item!r:.60} is neither an id nor an object with text")
    return ids


def _show_own(sample: Sample, retrieved: Any) -> Shown:
    """Shows what the row says was retrieved: texts, or the turns and sessions of its ids."""
    ids = retrieved_ids(retrieved)
    sessions = from_context(sample.context) if sample.context is not None else ()
    by_id: dict[str, Session] = {part.id: part for part in sessions}
    by_id |= {turn.id: part._replace(turns=(turn,)) for part in sessions for turn in part.turns}
    shown = []
    for number, (id_, item) in enumerate(zip(ids, retrieved, strict=True), 1):
        about = item if isinstance(item, Mapping) else {} if id_ else {"text": item}
        name = id_ or f"memory {number}"
        if about.get("text") is not None:
            turn = SpokenTurn(name, "", str(about["text"]))
            session = str(about.get("session", "")) or name
            shown.append(Session(session, str(about.get("date", "")), (turn,)))
        elif id_ in by_id:
            shown.append(by_id[id_])
        else:
            raise ValueError(f"retrieved: item {number} has no text, and no turn is called {id_!r}")
    return Shown(shown, ids)


class ConversationPrompt(Frozen):
    """The `prompt` of a benchmark in our words: one message of what all questions share (`before`),
    the conversation, and what differs (`after`, with {question}), for a common prefix. Too long a
    conversation loses whole sessions, or turns, out of its middle."""

    before: str
    after: str
    max_tokens: int

    def __call__(self, sample: Sample, candidate: Candidate) -> Prompt:
        return self.ask(sample, candidate, sample.query)

    def ask(self, sample: Sample, candidate: Candidate, question: str) -> Prompt:
        """The prompt with this question in the place of the sample's query."""
        shown, wanted = choose(sample, candidate), evidence_of(sample)
        text, passages = f"{self.before}\n\n", list[Passage]()
        for session in shown.sessions:
            head = f"[{session.date}]\n" if session.date else ""
            for number, turn in enumerate(session.turns, 1):
                line = f"{turn.speaker}: {turn.text}\n" if turn.speaker else f"{turn.text}\n"
                line = head + line + ("\n" if number == len(session.turns) else "")
                head = ""
                holds = tuple(
                    piece
                    for piece, (turn_id, session_id) in enumerate(wanted)
                    if (turn_id == turn.id if turn_id else session_id == session.id)
                )
                passages.append(Passage(len(text), len(text) + len(line), session.id, holds))
                text += line
        if not passages:
            text += f"{NOTHING}\n\n"
        about: dict[str, Any] = {"evidence_shown": []}
        if shown.retrieved is not None:
            about[RETRIEVED] = shown.retrieved
        content = text + self.after.replace("{question}", question)
        return Prompt(
            messages=(Message(role="user", content=content),),
            max_tokens=self.max_tokens,
            is_cut=True,
            passages=tuple(passages),
            about=about,
        )
