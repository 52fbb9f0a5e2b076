"""LV-Eval: English and Chinese questions on texts with confusing facts, at five lengths."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from memray_eval.benchmarks import long_context_suite
from memray_eval.benchmarks.lveval.rules import RULES, TASK_RULES
from memray_eval.benchmarks.templates import PromptByTask, own_wording
from memray_eval.benchmarks.templates.records import Published, task_of

TASKS = tuple(TASK_RULES)
_CHINESE = frozenset(
    task for task in TASKS if task.endswith("_zh") or task.endswith("_zh_mixup")
) | {"cmrc_mixup", "lic_mixup", "dureader_mixup"}
_LENGTH = re.compile(r"_(\d+k)$")  # hotpotwikiqa_mixup_16k
_TOKENS, _FACT_TOKENS = 64, 16  # the benchmark's own
_BEFORE = (
    "Below are several texts, of which one or a few say what a question after them asks. Some say "
    "things that only look like it."
)
_BEFORE_ZH = "下面有若干篇文章，其中一篇或几篇能回答文章之后的问题，有些内容只是看起来相关。"
_AFTER = "Question: {input}\n\nReply with the answer alone.\nAnswer:"
_AFTER_ZH = "问题：{input}\n\n请只写答案，不要写别的内容。\n答案："
WORDINGS = {
    task: own_wording(
        _BEFORE_ZH if task in _CHINESE else _BEFORE,
        _AFTER_ZH if task in _CHINESE else _AFTER,
        _FACT_TOKENS if task.startswith("factrecall") else _TOKENS,
    )
    for task in TASKS
}
_WITHOUT_TASK = own_wording(_BEFORE, _AFTER, _TOKENS)


def _read(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """A record's dataset, or its file's name, tells its task and its length, the bucket."""
    stem = path.replace("\\", "/").rpartition("/")[2].partition(".")[0]
    named = str(raw.get("dataset") or "")
    task = task_of({"task": _LENGTH.sub("", named) or None}, _LENGTH.sub("", stem), TASKS)
    length = _LENGTH.search(named) or _LENGTH.search(stem)
    keywords, facts = raw.get("answer_keywords"), raw.get("confusing_facts")
    if keywords is not None and not isinstance(keywords, str):
        raise ValueError(f"answer_keywords: must be text, not {keywords!r:.80}")
    return {
        "task": task,
        "query": raw["input"],
        "answers": raw["answers"],
        "language": raw.get("language") or ("zh" if task in _CHINESE else "en"),
        "metadata": {
            "length": raw["length"],
            **({"confusing_facts": facts} if facts else {}),
            **({"bucket": length[1]} if length else {}),
            **({"answer_keywords": keywords} if keywords else {}),
        },
    }


prompt = PromptByTask(wordings={**WORDINGS, "": _WITHOUT_TASK})
adapt = Published(
    kind="LV-Eval",
    fields={"input": str, "context": str, "answers": list, "length": int},
    used=("dataset", "task", "language", "answer_keywords", "confusing_facts"),
    tasks=TASKS,
    read=_read,
)


SUITE = long_context_suite(
    description="LV-Eval: questions on long texts with confusing facts, at five lengths",
    prompt=prompt,
    adapt=adapt,
    tasks=TASKS,
    rules=RULES,
    rule_of=lambda sample: "lveval" if sample.task in TASKS else None,
)
