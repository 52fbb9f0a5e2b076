"""What judges were asked: the prompt of each judged metric, with names in braces in place of a
row's own texts. The page's script puts the question and the answer of a row in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from memray_eval.metric import JudgedMetric, rubric_digest
from memray_eval.metrics import all_metrics
from memray_eval.types import Response, Sample, Turn

_ROW = Sample(
    id="-",
    query="{question}",
    memory={"{key}": "{value}"},
    history=(Turn(role="user", content="{earlier turn}"),),
    answers=("{accepted answer}",),
)
_ANSWER = Response(text="{answer}")


def find_prompts(manifest: Mapping[str, Any], metrics: Iterable[str]) -> dict[str, str]:
    """The judge's prompt of each of these metrics. Left out are metrics that no judge scores, and
    those whose rubric is another by now, or is the user's own: the manifest has its digest."""
    digests = manifest.get("rubrics")
    if not isinstance(digests, Mapping):
        return {}
    metrics_by_name = all_metrics()
    prompts = {}
    for name in metrics:
        metric = metrics_by_name.get(name)
        if isinstance(metric, JudgedMetric) and name in digests:
            for rubric in (None, *metric.rubrics.values()):
                if rubric_digest(metric, rubric) == digests[name]:
                    prompts[name] = _write(metric, rubric)
                    break
    return {name: text for name, text in prompts.items() if text}


def _write(metric: JudgedMetric, rubric: str | None) -> str:
    """The messages to a judge, one after the other; "" if they need what a made-up row lacks."""
    try:
        messages = metric.messages(_ROW, _ANSWER, rubric)
    except Exception:  # such as a metric that reads the sample's traits
        return ""
    return "\n\n".join(f"[{message.role}]\n{message.content}" for message in messages)
