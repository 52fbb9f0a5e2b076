"""The prompts of judges, and what their scores mean. In the prompt of a judged metric names in
braces are in place of a row's own texts; the page's script puts the question and the answer in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from memray_eval.metric import JudgedMetric, rubric_digest
from memray_eval.metrics import all_metrics
from memray_eval.metrics.catalogue import agreement_in_words, anchors_of
from memray_eval.types import Message, Response, Sample, Turn

_ROW = Sample(
    id="-",
    query="{question}",
    memory={"{key}": "{value}"},
    history=(Turn(role="user", content="{earlier turn}"),),
    answers=("{accepted answer}",),
)
_ANSWER = Response(text="{answer}")


class ScoreMeaning(NamedTuple):
    """What levels of a metric look like, and how far its judges agree with people."""

    version: int
    levels: list[tuple[str, str]]
    agreement: list[str]


def find_prompts(manifest: Mapping[str, Any], metrics: Iterable[str]) -> dict[str, str]:
    """The judge's prompt of each of these metrics. Left out are metrics that no judge scores, and
    those whose rubric is another by now, or is the user's own: the manifest has its digest."""
    ours = _find_rubrics(manifest, metrics)
    prompts = {metric.name: judge_messages(metric, rubric) for metric, rubric in ours}
    return {
        name: "\n\n".join(f"[{message.role}]\n{message.content}" for message in messages)
        for name, messages in prompts.items()
        if messages
    }


def find_meanings(manifest: Mapping[str, Any], metrics: Iterable[str]) -> dict[str, ScoreMeaning]:
    """What the scores of these metrics mean, if `find_prompts` has a prompt of them."""
    meanings = {}
    for metric, _ in _find_rubrics(manifest, metrics):
        if metric.anchors:
            agreement = agreement_in_words(metric.name)
            meanings[metric.name] = ScoreMeaning(metric.version, anchors_of(metric), agreement)
    return meanings


def _find_rubrics(
    manifest: Mapping[str, Any], metrics: Iterable[str]
) -> Iterator[tuple[JudgedMetric, str | None]]:
    """The metrics judged by a rubric that is still ours, and its text, None for the default."""
    digests = manifest.get("rubrics")
    metrics_by_name = all_metrics()
    if not isinstance(digests, Mapping):
        return
    for name in metrics:
        metric = metrics_by_name.get(name)
        if isinstance(metric, JudgedMetric) and name in digests:
            digest = str(digests[name]).partition(", ")[0]  # an option may follow it
            for rubric in (None, *metric.rubrics.values()):
                if rubric_digest(metric, rubric) == digest:
                    yield metric, rubric
                    break


def judge_messages(metric: JudgedMetric, rubric: str | None = None) -> Sequence[Message]:
    """The messages to a judge; none if they need what a made-up row lacks."""
    try:
        return metric.messages(_ROW, _ANSWER, rubric)
    except Exception:  # such as a metric that reads the sample's traits
        return ()
