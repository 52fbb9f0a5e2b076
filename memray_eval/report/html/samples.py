"""Prepares records for the page's sample browser: a short row per record, and its whole texts in
chunks that the browser parses when it shows them."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

from markupsafe import Markup

from memray_eval.report.html.why import total_of
from memray_eval.types import Record, Response, Score, Status

MOST_RECORDS = 10_000
MOST_CHARACTERS = 200_000_000  # of JSON in one page: browsers have trouble with more
CHUNK = 100  # records that the browser parses at once
SNIPPET = 180
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True)
class Embedded:
    """The browser's data as JSON that is safe inside a script element; how many records."""

    index: Markup
    chunks: tuple[Markup, ...]
    n: int


class Names(dict[str, int]):
    """Numbers names in the order of their first use. A name keeps its number."""

    def __missing__(self, name: str) -> int:
        return self.setdefault(name, len(self))


def embed(
    records: Iterable[Record],
    scales: Mapping[str, tuple[float, float]],
    most_records: int = MOST_RECORDS,
    most_characters: int = MOST_CHARACTERS,
) -> Embedded:
    """Embeds the first records within the limits, at least one. `scales` by metric."""
    metrics, candidates, tasks = Names(), Names(), Names()
    rows: list[list[Any]] = []
    wholes: list[str] = []
    size = 0
    for record in records:
        whole = to_json(whole_record(record, metrics))
        size += len(whole)
        if rows and (len(rows) == most_records or size > most_characters):
            break
        rows.append(list_row(record, metrics, candidates, tasks))
        wholes.append(whole)
    parts = (wholes[first : first + CHUNK] for first in range(0, len(wholes), CHUNK))
    chunks = tuple(Markup(f"[{','.join(part)}]") for part in parts)
    index = {**describe_numbers(metrics, candidates, tasks, scales), "chunk": CHUNK, "rows": rows}
    return Embedded(Markup(to_json(index)), chunks, len(rows))


def describe_numbers(
    metrics: Names, candidates: Names, tasks: Names, scales: Mapping[str, tuple[float, float]]
) -> dict[str, Any]:
    """Lists what the numbers in rows and records stand for."""
    return {
        "metrics": [
            {"name": name, "scale": scales.get(name, (0.0, 1.0))}
            | ({"total": total} if (total := total_of(name)) else {})
            for name in metrics
        ],
        "candidates": list(candidates),
        "tasks": list(tasks),
        "statuses": STATUSES,
    }


def to_json(value: Any) -> str:
    """Encodes JSON that is safe inside a script element: every `<` is written as its escape."""
    encode = partial(json.dumps, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        text = encode(value)
    except ValueError:  # a browser reads no NaN
        text = encode(json.loads(json.dumps(value), parse_constant=lambda name: None))
    return text.replace("<", "\\u003c")


def list_row(record: Record, metrics: Names, candidates: Names, tasks: Names) -> list[Any]:
    """Makes the row that the list shows, filters and sorts by; the epoch only after the first. A
    score is [metric, status], then its value if it has one, then a 1 if that is an estimate."""
    response = record.response or Response()
    outcomes = []
    for score in record.scores:
        outcome: list[Any] = [metrics[score.metric], STATUSES.index(score.status)]
        if score.value is not None and math.isfinite(score.value):
            outcome += [round(score.value, 6), *[1] * score.is_estimate]
        outcomes.append(outcome)
    return [
        record.sample.id,
        candidates[record.candidate.name],
        tasks[record.sample.task],
        int(record.is_failed),
        record.sample.query[:SNIPPET],
        (response.error or response.text)[:SNIPPET],
        response.duration_s,
        response.output_tokens,
        outcomes,
        *([record.epoch] if record.epoch > 1 else []),
    ]


def whole_record(record: Record, metrics: Names) -> dict[str, Any]:
    """Collects all that the detail view shows, without the empty parts."""
    sample, response = record.sample, record.response or Response(error="no response")
    about = {
        "epoch": record.epoch if record.epoch > 1 else "",
        "scenario": sample.scenario,
        "prompt type": sample.prompt_type,
        **sample.metadata,  # which may hold any JSON
    }
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in about.items()
    }
    shown = {
        "unit": record.unit_id,
        "query": sample.query,
        "memory": [[key, value] for key, value in sample.memory.items()],
        "required": sample.required_keys,
        "forbidden": sample.forbidden_keys,
        "neutral": sample.neutral_keys,
        "history": [[turn.role, turn.content] for turn in sample.history],
        "answers": sample.answers,
        "traits": sample.traits,
        "emotion": sample.emotion,
        "about": {name: text for name, text in texts.items() if text},
        "response": response.text,
        "thinking": response.thinking,
        "raw": response.raw,
        "served": response.served_model,
        "no_answer": response.no_answer,
        "refusal": response.refusal,
        "error": response.error,
        "ended": response.finish_reason,
        "tokens": [response.prompt_tokens, response.output_tokens],
        "times": [response.ttft_s, response.duration_s],
        "cut": response.truncated_tokens,
        "scores": [_score_details(score, metrics) for score in record.scores],
    }
    return {name: value for name, value in shown.items() if value not in (None, "", [], (), {})}


def _score_details(score: Score, metrics: Names) -> dict[str, Any]:
    shown = {
        "m": metrics[score.metric],
        "s": STATUSES.index(score.status),
        "v": score.value,
        "judgment": score.judgment,
        "judge": score.judge,
        "served": score.served_model,
        "error": score.error,
        "parts": score.parts,
        "cached": score.cached,
        "estimate": score.is_estimate,
        "usd": score.cost_usd,
        "unpriced": score.usage.unpriced_calls,
        "latency": round(score.latency_s, 3),
    }
    blank: tuple[Any, ...] = (None, "", {}, False, 0.0)
    return {name: of for name, of in shown.items() if name in "msv" or of not in blank}
