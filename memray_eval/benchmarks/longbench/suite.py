"""LongBench: 21 tasks in English, Chinese and code, with LongBench-E (even lengths)."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from memray_eval.benchmarks import Suite, long_context_suite
from memray_eval.benchmarks.longbench.rules import RULE_OF_TASK, RULES
from memray_eval.benchmarks.templates import PromptByTask, Wording, own_values, own_wording
from memray_eval.benchmarks.templates.files import (
    Published,
    ask_with_templates,
    find_beside,
    is_file,
    query_of,
    read_lengths,
    read_templates,
    task_of,
    task_of_path,
)
from memray_eval.errors import ConfigError
from memray_eval.types import Sample

EVEN = "LongBench-E"
_CHINESE = ("multifieldqa_zh", "dureader", "vcsum", "lsht", "passage_retrieval_zh")
_STATEMENTS = {  # what records ask whose input is empty
    "gov_report": "Summarize the report on one page.",
    "multi_news": "Summarize all the news articles together on one page.",
    "vcsum": "请总结这次会议的内容。",
    "passage_count": "How many different paragraphs are there, once repetitions are left out?",
    "lcc": "What is the next line of this code?",
}

_PASSAGES = (
    "Below are passages, some of which help to answer a question that follows them.",
    "Question: {input}\n\nAnswer from the passages. Reply with the answer alone, in as few words "
    "as possible.\nAnswer:",
    32,
)
# examples to continue: LongBench asks these without the chat template
_plain = partial(own_wording, is_chat=False)
WORDINGS: dict[str, Wording] = {
    "narrativeqa": own_wording(
        "Below is a story, a novel or a film script. Read it; a question about it follows.",
        "Question: {input}\n\nAnswer from the story in as few words as possible, and explain "
        "nothing.\nAnswer:",
        128,
    ),
    "qasper": own_wording(
        "Below is a scientific article. Read it; a question about it follows.",
        "Question: {input}\n\nAnswer from the article, with a phrase or one sentence and no "
        "explanation. To a yes/no question "
        'reply "yes" or "no". If the article does not answer it, reply "unanswerable".\nAnswer:',
        128,
    ),
    "multifieldqa_en": own_wording(
        "Read the text below; a question about it follows.",
        "Question: {input}\n\nAnswer briefly from the text. Reply with the answer and nothing "
        "else.\nAnswer:",
        64,
    ),
    "multifieldqa_zh": own_wording(
        "请阅读下面的文字，之后回答关于它的一个问题。",
        "问题：{input}\n\n请根据上文用中文简短回答，只写答案，不要写别的内容。\n答案：",
        64,
    ),
    **dict.fromkeys(("hotpotqa", "2wikimqa", "musique"), own_wording(*_PASSAGES)),
    "dureader": own_wording(
        "请阅读下面的文章，之后回答一个问题。",
        "问题：{input}\n\n请根据上面的文章回答。\n答案：",
        128,
    ),
    "gov_report": own_wording(
        "Below is a report by a government agency.", "{input}\n\nSummary:", 512
    ),
    "qmsum": own_wording(
        "Below is the transcript of a meeting. Read it; a question or an instruction about it "
        "follows.",
        "{input}\n\nAnswer from the transcript in one or a few sentences.\nAnswer:",
        512,
    ),
    "multi_news": own_wording("Below are several news articles.", "{input}\n\nSummary:", 512),
    "vcsum": own_wording("下面是一份会议记录。", "{input}\n\n总结：", 512),
    "trec": _plain(
        "Each question below is followed by its type. Give the type of the last one, in the words "
        "that the others use.",
        "{input}",
        64,
    ),
    "triviaqa": _plain(
        "Each passage below is followed by a question and its answer. Answer the last question: "
        "the answer alone, as in the examples.",
        "{input}",
        32,
    ),
    "samsum": _plain(
        "Each dialogue below is followed by its summary in a few short sentences. Write the "
        "summary of the last one.",
        "{input}",
        128,
        stop=("\n",),
    ),
    "lsht": _plain(
        "下面每条新闻之后是它的类别。请写出最后一条新闻的类别，用词与前面的例子一致。",
        "{input}",
        64,
    ),
    "passage_count": own_wording(
        "Below are numbered paragraphs, some of which repeat an earlier one word for word. "
        "Compare them carefully.",
        "{input}\n\nReply with the number alone.\nAnswer:",
        32,
    ),
    "passage_retrieval_en": own_wording(
        "Below are numbered paragraphs. After them comes a summary of one of them.",
        "The summary: {input}\n\nWhich paragraph does it summarize? Reply with its number alone, "
        "in the form "
        '"Paragraph 1".\nAnswer:',
        32,
    ),
    "passage_retrieval_zh": own_wording(
        "下面是若干带编号的段落，之后给出其中某一段的摘要。",
        "摘要：{input}\n\n这是哪一段的摘要？只写该段的编号，格式如“段落1”。\n答案：",
        32,
    ),
    "lcc": _plain(
        "Below is the beginning of a source file. Write the one line that comes next: code alone, "
        "no explanation.",
        "{input}\nNext line:\n",
        64,
    ),
    "repobench-p": _plain(
        "Below are pieces of a repository, then the file being written. Write the one line that "
        "comes next in that file: code alone, no explanation.",
        "{input}\nNext line:\n",
        64,
    ),
}
TASKS = tuple(WORDINGS)
_EVEN_TASKS = {f"{task}_e": task for task in TASKS}
_WITHOUT_TASK = own_wording("Read the text below; a question about it follows.", "{input}", 128)


def _read(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """A record as the fields of a sample."""
    fields = _fields_beside_query(raw, path)
    query, noted = query_of(raw, fields["task"], _STATEMENTS)
    # A sample of LongBench-E is often one of LongBench too; a folder may hold both.
    even = "_e" if "edition" in fields["metadata"] else ""
    own_id = f"{fields['task']}{even}:{raw['_id']}"
    return {**fields, "id": own_id, "query": query, "metadata": {**fields["metadata"], **noted}}


def _fields_beside_query(raw: Mapping[str, Any], path: str) -> dict[str, Any]:
    """`metadata.bucket` is LongBench-E's class of the length, `metadata.edition` LongBench-E."""
    # TASK_e, in the record or as the file's name, is LongBench-E
    filed = task_of_path(path, (*TASKS, *_EVEN_TASKS))
    named = raw.get("dataset") or raw.get("task") or filed
    is_even = not {str(named), filed}.isdisjoint(_EVEN_TASKS)
    task = task_of({"task": _EVEN_TASKS.get(str(named), named)}, path, TASKS)
    edition = {"edition": EVEN} if is_even else {}
    return {
        "task": task,
        "answers": raw["answers"],
        "classes": raw.get("all_classes") or [],
        "language": raw.get("language") or ("zh" if task in _CHINESE else "en"),
        "metadata": {"length": raw["length"], "bucket": bucket(raw["length"]), **edition},
    }


prompt = PromptByTask(wordings={**WORDINGS, "": _WITHOUT_TASK})
_published = Published(
    kind="LongBench",
    fields={"_id": None, "input": str, "context": str, "answers": list, "length": int},
    used=("dataset", "task", "language", "all_classes", "id"),
    tasks=TASKS,
    read=_read,
)


def adapt(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """A record, a row of our own, or a row of pred/*.jsonl as LongBench's pred.py writes it, which
    lacks the question. Raises ValueError that says what is wrong."""
    if raw.get("query") != "" or not {"answers", "length"} <= raw.keys():
        return _published(raw, path)
    prediction = {name: raw[name] for name in raw if name not in ("all_classes", "length")}
    return {**prediction, **_fields_beside_query(raw, path)}


def bucket(length: int) -> str:
    """LongBench-E's class of a length in words (characters for Chinese)."""
    return "0-4k" if length < 4000 else "4-8k" if length < 8000 else "8k+"


def templated(suite: Suite, path: str) -> Suite:
    """With the benchmark's dataset2prompt.json and, if there is one, dataset2maxlen.json: a folder
    with them, or the file. Raises ConfigError naming file and task."""
    prompts = path if is_file(path) else find_beside(path, "dataset2prompt.json")
    if prompts is None:
        raise ConfigError(
            f"templates: {path} has no dataset2prompt.json; LongBench keeps it in its folder config"
        )
    templates = read_templates(prompts, TASKS, ("context", "input"))
    lengths = find_beside(prompts, "dataset2maxlen.json")
    max_tokens = read_lengths(lengths, TASKS) if lengths else {}
    wordings = {
        task: WORDINGS[task].model_copy(
            update={"template": template}
            | ({"max_tokens": max_tokens[task]} if task in max_tokens else {})
        )
        for task, template in templates.items()
    }
    return ask_with_templates(suite, prompts, wordings, _values)


def _values(sample: Sample) -> dict[str, str]:
    """The input as it was published, which may be empty."""
    own = own_values(sample)
    return own | {"input": str(sample.metadata.get("input", own["input"]))}


SUITE = long_context_suite(
    description="LongBench: 21 long-context tasks in English, Chinese and code (LongBench-E too)",
    prompt=prompt,
    adapt=adapt,
    tasks=TASKS,
    rules=RULES,
    rule_of=lambda sample: RULE_OF_TASK.get(sample.task),
    templated=templated,
)
