"""HELMET's recall tasks (RULER's needles, JSON key-values) and RAG tasks (KILT questions)."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from memray_eval.benchmarks import Rule, long_context_suite
from memray_eval.benchmarks.longbench.rules import english_words
from memray_eval.benchmarks.needles.prose import length_label
from memray_eval.benchmarks.templates import PromptByTask, own_wording
from memray_eval.benchmarks.templates.files import Published, check_record, is_own_record
from memray_eval.types import Sample

VERSION = "HELMET 4526dfb"
ANSWER, VALUE = "Answer:", "corresponding value:"
NEEDLES = ("niah_multikey_2", "niah_multikey_3", "niah_multivalue")  # folders below ruler/
RAG = ("nq", "triviaqa", "hotpotqa", "popqa")  # files below kilt/
JSON_KV = "json_kv"
# Questions of popqa on subjects that are no less known than HELMET's bound, which it leaves out
POPULAR = "popqa_popular"
POPULARITY = 3.0  # log10 of a subject's page views
TASKS = (*NEEDLES, JSON_KV, *RAG, POPULAR)
# The pairs or passages of each length, by the benchmark's configurations
_PAIRS = {105: "8k", 220: "16k", 440: "32k", 900: "64k", 1800: "128k"}
_PASSAGES = {50: "8k", 105: "16k", 220: "32k", 440: "64k", 1000: "128k"}
_COUNT = re.compile(r"_k(\d+)_")  # test_k105_dep6.jsonl, nq-dev-multikilt_1000_k50_dep6.jsonl
_TOKENS = re.compile(r"validation_(\d+)")
# The names of a record's fields in metadata: a question is in several records, and `depth`
# is in the benchmark's own unit
_NOTED = {"id": "question_id", "index": "index", "num_kvs": "num_kvs",
          "type_needle_v": "type_needle_v", "s_pop": "s_pop",
          "depth": "gold_depth"}  # fmt: skip
_OWN_FIELDS = ("task", "query", "question", "context", "answer", "answers", "outputs")

_TEXT = "Read the text below and keep in mind what it says; a question about it follows."
WORDINGS = {
    **dict.fromkeys(
        NEEDLES,
        own_wording(_TEXT, "{input}\n\nReply with what is asked for and nothing else.", 100),
    ),
    JSON_KV: own_wording(
        "Below is a JSON object of keys and values.",
        "What is the value of this key in the object above? Reply with the value alone.\n"
        "Key: {input}\nCorresponding value:",
        100,
    ),
    **dict.fromkeys(
        (*RAG, POPULAR),
        own_wording(
            "Below are documents, some of which help to answer the question after them.",
            "Question: {input}\n\nReply with the answer alone, in as few words as possible.\n"
            "Answer:",
            20,
        ),
    ),
}
_WITHOUT_TASK = own_wording(_TEXT, "{input}", 100)


def _read(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """A record of data/ruler, data/json_kv or data/kilt, by its file."""
    task, bucket = read_path(path)
    if task in RAG:
        fields = _read_rag(raw, task)
    elif task == JSON_KV:
        check_record(raw, "HELMET's json_kv", {"context": str, "question": str, "answer": None})
        fields = {"query": raw["question"], "answers": _as_list(raw["answer"], "answer")}
    else:
        wanted = {"context": str, "query": str, "type_needle_v": str}
        check_record(raw, "HELMET's needles", wanted)
        answers = raw["answer"] if raw.get("answer") is not None else raw.get("outputs")
        asked_for = f"special magic {raw['type_needle_v']} for {raw['query']}"
        query = f"What are all the {asked_for} in the text?"
        fields = {"query": query, "answers": _as_list(answers, "answer")}
    about = {name: raw[field] for field, name in _NOTED.items() if raw.get(field) is not None}
    if bucket:
        about["bucket"] = bucket
    if task in NEEDLES:
        about["needs_all"] = True
    return {"context": raw.get("context"), "task": task, **fields, "metadata": about}


prompt = PromptByTask(wordings={**WORDINGS, "": _WITHOUT_TASK})
adapt = Published(
    kind="HELMET",
    used=(*_OWN_FIELDS, *_NOTED, "ctxs", "demos"),
    aliases=[("question", ("ctxs",)), ("question", ("num_kvs",))],
    tasks=TASKS,
    is_published=lambda raw: not is_own_record(raw) or "type_needle_v" in raw,
    read=_read,
)


def read_path(path: str) -> tuple[str, str | None]:
    """The task of a published file, and its length if it is the benchmark's. Raises ValueError."""
    parts = path.replace("\\", "/").rstrip("/").split("/")[-3:]
    name = parts[-1]
    tokens, count = _TOKENS.search(name), _COUNT.search(name)
    needle = next((part for part in parts[:-1] if part in NEEDLES), None)
    if needle:
        return needle, length_label(int(tokens[1])) if tokens and int(tokens[1]) else None
    n = int(count[1]) if count else 0
    if JSON_KV in parts:
        return JSON_KV, _PAIRS.get(n)
    rag = next((task for task in RAG if name.startswith(task)), None)
    if rag is None:
        raise ValueError(
            f"no task in the name of {path}; HELMET's files of these tasks are ruler/FOLDER/"
            f"validation_N.jsonl ({', '.join(NEEDLES)}), json_kv/test_kN_dep6.jsonl and "
            f"kilt/NAME... ({', '.join(RAG)})"
        )
    return rag, _PASSAGES.get(n)


def _read_rag(raw: Mapping[str, Any], task: str) -> dict[str, Any]:
    """A question with its passages; a well-known subject of popqa's is a task of its own."""
    check_record(raw, "HELMET's RAG tasks", {"question": str, "answers": list, "ctxs": list})
    passages = []
    for number, passage in enumerate(raw["ctxs"], 1):
        if not isinstance(passage, Mapping) or not isinstance(passage.get("text"), str):
            raise ValueError(f"ctxs: passage {number} must have a text")
        passages.append(f"Document (Title: {passage.get('title', '')}): {passage['text']}")
    views = raw.get("s_pop")
    if task == "popqa" and isinstance(views, int | float) and not isinstance(views, bool):
        task = POPULAR if views > 0 and math.log10(views) >= POPULARITY else task
    return {
        "task": task,
        "query": raw["question"],
        "context": "\n\n".join(passages) or None,
        "answers": _as_list(raw["answers"], "answers"),
    }


def _as_list(answers: Any, field: str) -> list[str]:
    """One answer or several as texts; those of a question with several lists in one."""
    listed = [answers] if isinstance(answers, str) else answers
    if isinstance(listed, list) and listed and all(isinstance(part, list) for part in listed):
        listed = [text for part in listed for text in part]
    if not isinstance(listed, list) or not listed or not all(isinstance(a, str) for a in listed):
        raise ValueError(f"{field}: must be text or a list of text, not {answers!r:.80}")
    return listed


def substring_match(reply: str, answers: Sequence[str], prefix: str = ANSWER) -> float:
    """HELMET's score of its RAG tasks and of json_kv, as princeton-nlp/HELMET 4526dfb has it
    (utils.py, data.py): 1.0 if any of the answers, without case, punctuation and articles, is a
    part of the reply or of what follows the prefix there. Parts of words count: "art" is in
    "party". Raises ValueError without answers."""
    if not answers:
        raise ValueError("the sample has no answers to look for")
    texts = [" ".join(english_words(text)) for text in (reply, read_answer(reply, prefix))]
    wanted = [" ".join(english_words(answer)) for answer in answers]
    return float(any(answer in text for answer in wanted for text in texts))


def read_answer(reply: str, prefix: str) -> str:
    """The rest of the first line after the prefix, in any case; without it that line."""
    match = re.search(f"{re.escape(prefix)}(.*)", reply, re.IGNORECASE)
    text = (match[1] if match else reply.split("\n")[0]).strip()
    return re.sub(f"^{re.escape(prefix)}", "", text, flags=re.IGNORECASE).strip()


RULES = {
    "helmet_substring": Rule(
        title="HELMET substring match",
        value_label="Accuracy",
        about="Whether a right answer is a part of the reply, both normalised, as HELMET scores "
        "RAG.",
        version=VERSION,
        score=lambda sample, text: substring_match(
            text, sample.answers, VALUE if sample.task == "json_kv" else ANSWER
        ),
        by=substring_match,
    )
}


def rule_of(sample: Sample) -> str | None:
    """RULER's for its needles; no rule for a sample without a task."""
    if sample.task.startswith("niah_"):
        return "ruler_recall"
    return "helmet_substring" if sample.task else None


SUITE = long_context_suite(
    description="HELMET: its recall and RAG tasks at five lengths",
    prompt=prompt,
    adapt=adapt,
    tasks=TASKS,
    rules=RULES,
    rule_of=rule_of,
)
