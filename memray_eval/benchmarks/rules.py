"""Which rule scores which task: the table from suite and task to the benchmark's own rule, and
every rule under its name.

The rules are pure functions of the benchmarks' own folders (rules.py, ruler_rules.py); here they
meet the Sample. A sample of the suite long_context is scored as one of the benchmark that it is
of."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memray_eval.benchmarks.babilong import rules as babilong
from memray_eval.benchmarks.graphwalks import rules as graphwalks
from memray_eval.benchmarks.helmet import rules as helmet
from memray_eval.benchmarks.infinitebench import rules as infinitebench
from memray_eval.benchmarks.locomo import rules as locomo
from memray_eval.benchmarks.long_context.names import as_published
from memray_eval.benchmarks.longbench import rules as longbench
from memray_eval.benchmarks.lveval import rules as lveval
from memray_eval.benchmarks.mrcr import rules as mrcr
from memray_eval.benchmarks.needles import ruler_rules as ruler
from memray_eval.benchmarks.nolima import rules as nolima
from memray_eval.benchmarks.personamem import rules as personamem
from memray_eval.metric import ComputedMetric, MetricValue
from memray_eval.types import Response, Sample

_CHOICE_TASKS = frozenset({"longbook_choice_eng", "code_debug"})
_LETTERS = ("A", "B", "C", "D")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule by its name. `version` is the original's repository and commit; `why_not` says why
    it does not apply to a sample, None where it does; `score` gives 0-1 and raises ValueError that
    says what the sample lacks."""

    title: str
    value_label: str
    version: str
    score: Callable[[Sample, str], float]
    why_not: Callable[[Sample], str | None] = lambda sample: None


def rule_name(sample: Sample) -> str | None:
    """The name of the sample's rule: metadata.rule, else its suite's for its task, else the task's
    in any suite that has one (metadata.rules = "v1" or "v2" picks InfiniteBench's version; v2 is
    the default). None: no rule."""
    if (named := sample.metadata.get("rule")) is not None:
        return str(named)
    sample = as_published(sample)
    if sample.suite in SUITES:
        name = SUITES[sample.suite](sample.task)
    else:  # such as one that is read back as given answers
        task = sample.task
        name = LONGBENCH.get(task) or _infinitebench_task(task) or _needles_task(task)
    return (
        f"infinitebench_{sample.metadata.get('rules', 'v2')}" if name == "infinitebench" else name
    )


def score_by_rule(name: str, sample: Sample, response: Response) -> MetricValue:
    """The named rule on one response. Raises ValueError for a rule there is not, and for what the
    rule lacks."""
    if name not in RULES:
        raise ValueError(f"no rule {name!r}; there are: {', '.join(RULES)}")
    return MetricValue(value=RULES[name].score(as_published(sample), response.text))


def scorer(name: str) -> str:
    """Who scored: the rule and the version of its original."""
    return f"{name}, {RULES[name].version}" if name in RULES else name


def rule_metric(name: str) -> ComputedMetric:
    """The metric that is this one rule, whatever the task."""
    rule = RULES[name]
    return ComputedMetric(
        title=f"{rule.title} ({rule.version})",
        value_label=rule.value_label,
        scale=(0, 1),
        measure=lambda sample, response: score_by_rule(name, sample, response),
        applies=lambda sample: rule.why_not(as_published(sample)),
        scorer=lambda sample: scorer(name),
    )


def _letter(sample: Sample) -> str:
    """The right letter: the published label, else the first answer that is a letter. Raises
    ValueError where neither is."""
    offered = (sample.metadata.get("label"), *sample.answers)
    letter = next((text for text in offered if text in _LETTERS), None)
    if letter is None:
        raise ValueError(
            f"none of the answers {list(sample.answers)} is a letter A-D, which LongBench v2's "
            "rule compares"
        )
    return str(letter)


def _infinitebench(version: infinitebench.Version) -> Callable[[Sample, str], float]:
    def score(sample: Sample, text: str) -> float:
        label = _label(sample)
        if sample.task == "math_calc":
            is_gpt4 = sample.metadata.get("model") == "gpt4"
            return infinitebench.math_calc(text, label, skip_first=is_gpt4)
        return infinitebench.score(sample.task, text, label, version)

    return score


def _label(sample: Sample) -> infinitebench.Label:
    """The published label in metadata.label; else it is made of the answers: numbers out of their
    text for math_calc, the first answer for kv_retrieval, all of them for the others."""
    published: Any = sample.metadata.get("label")
    answers = list(sample.answers)
    if published is None and sample.task == "math_calc":
        return [int(number) for answer in answers for number in re.findall(r"-?[0-9]+", answer)]
    if published is None and sample.task == "kv_retrieval" and answers:
        return answers[0]
    label: infinitebench.Label = answers if published is None else published
    if sample.task in _CHOICE_TASKS:
        return infinitebench.choice_label(label, sample.metadata.get("options", ()))
    return label


def _babilong(sample: Sample, text: str) -> float:
    if (why_not := _not_babilong(sample)) is not None:
        raise ValueError(why_not)
    if len(sample.answers) != 1:
        raise ValueError(
            f"BABILong's rule compares one answer; the sample has {len(sample.answers)}"
        )
    labels = sample.classes or babilong.LABELS[sample.task]
    return babilong.only_label(text, sample.answers[0], sample.query, labels)


def _locomo(sample: Sample, text: str) -> float:
    """The best over the answers, of which LoCoMo itself has one a question."""
    if sample.task == "adversarial":
        return locomo.score(sample.task, text, "")
    if not sample.answers:
        raise ValueError("LoCoMo's F1 compares an answer, and the sample has none")
    return max(locomo.score(sample.task, text, answer) for answer in sample.answers)


def _personamem(sample: Sample, text: str) -> float:
    offered = (str(sample.metadata.get("label", "")), *sample.answers)
    letters = (found.strip("() ").lower() for found in offered)
    letter = next((one for one in letters if one in (*personamem.LETTERS,)), None)
    if letter is None:
        raise ValueError("none of the answers is a letter (a) to (d), which PersonaMem compares")
    return personamem.letter_score(text, letter)


def _mrcr(sample: Sample, text: str) -> float:
    if (why_not := _not_mrcr(sample)) is not None:
        raise ValueError(why_not)
    if len(sample.answers) != 1:
        raise ValueError(f"MRCR compares one answer; the sample has {len(sample.answers)}")
    return mrcr.prefix_ratio(text, sample.answers[0], sample.metadata[mrcr.PREFIX])


def _not_mrcr(sample: Sample) -> str | None:
    prefix = sample.metadata.get(mrcr.PREFIX)
    return None if isinstance(prefix, str) else f"the sample's metadata has no {mrcr.PREFIX}"


def _of_graphwalks(
    title: str, rule: Callable[[str, Sequence[str]], float], version: str = graphwalks.VERSION
) -> Rule:
    return Rule(
        title=title,
        value_label="F1",
        version=version,
        score=lambda sample, text: rule(text, sample.answers),
        why_not=lambda sample: (
            None
            if sample.task in graphwalks.TASKS
            else f"task {sample.task!r} is none of GraphWalks's: {', '.join(graphwalks.TASKS)}"
        ),
    )


def _helmet(sample: Sample, text: str) -> float:
    prefix = helmet.VALUE if sample.task == "json_kv" else helmet.ANSWER
    return helmet.substring_match(text, sample.answers, prefix)


def _lveval(sample: Sample, text: str) -> float:
    """The first answer alone, as the original compares."""
    if (why_not := _not_lveval(sample)) is not None:
        raise ValueError(why_not)
    if not sample.answers:
        raise ValueError("LV-Eval compares the first answer, and the sample has none")
    keywords = sample.metadata.get("answer_keywords")
    return lveval.RULES[sample.task](text, sample.answers[0], str(keywords) if keywords else None)


def _not_lveval(sample: Sample) -> str | None:
    return None if sample.task in lveval.RULES else f"LV-Eval has no task {sample.task!r}"


def _not_babilong(sample: Sample) -> str | None:
    if sample.classes or sample.task in babilong.LABELS:
        return None
    return f"task {sample.task!r} is none of BABILong's qa1 to qa20, and the sample has no classes"


def _of_longbench(
    title: str, value_label: str, rule: Callable[[str, Sequence[str]], float]
) -> Rule:
    return Rule(
        title=title,
        value_label=value_label,
        version=longbench.VERSION,
        score=lambda sample, text: rule(longbench.first_line(sample.task, text), sample.answers),
    )


def _of_infinitebench(version: infinitebench.Version) -> Rule:
    return Rule(
        title="InfiniteBench score",
        value_label="Score",
        version=infinitebench.VERSIONS[version],
        score=_infinitebench(version),
        why_not=lambda sample: (
            None
            if sample.task in infinitebench.RULES["v2"]
            else f"InfiniteBench has no rule for task {sample.task!r}"
        ),
    )


RULES: Mapping[str, Rule] = {
    "qa_f1": _of_longbench("QA F1", "F1", longbench.qa_f1),
    "qa_f1_zh": _of_longbench("QA F1, Chinese words", "F1", longbench.qa_f1_zh),
    "rouge": _of_longbench("ROUGE-L", "ROUGE-L", longbench.rouge),
    "rouge_zh": _of_longbench("ROUGE-L, Chinese words", "ROUGE-L", longbench.rouge_zh),
    "classification": Rule(
        title="Classification",
        value_label="Accuracy",
        version=longbench.VERSION,
        score=lambda sample, text: longbench.classification(
            longbench.first_line(sample.task, text), sample.answers, sample.classes
        ),
        why_not=lambda sample: None if sample.classes else "the sample has no classes",
    ),
    "count": _of_longbench("Count", "Accuracy", longbench.count),
    "retrieval": _of_longbench("Paragraph retrieval", "Accuracy", longbench.retrieval),
    "retrieval_zh": _of_longbench(
        "Paragraph retrieval, Chinese", "Accuracy", longbench.retrieval_zh
    ),
    "code_sim": _of_longbench("Code similarity", "Similarity", longbench.code_sim),
    "longbench2_choice": Rule(
        title="LongBench v2 choice",
        value_label="Accuracy",
        version=longbench.VERSION,
        score=lambda sample, text: longbench.longbench2_choice(text, _letter(sample)),
    ),
    "infinitebench_v1": _of_infinitebench("v1"),
    "infinitebench_v2": _of_infinitebench("v2"),
    "ruler_recall": Rule(
        title="RULER recall of all answers",
        value_label="Recall",
        version=ruler.VERSION,
        score=lambda sample, text: ruler.recall(text, sample.answers),
    ),
    "ruler_any": Rule(
        title="RULER any answer",
        value_label="Accuracy",
        version=ruler.VERSION,
        score=lambda sample, text: ruler.any_answer(text, sample.answers),
    ),
    "babilong": Rule(
        title="BABILong only label",
        value_label="Accuracy",
        version=babilong.VERSION,
        score=_babilong,
        why_not=_not_babilong,
    ),
    "mrcr_ratio": Rule(
        title="MRCR ratio",
        value_label="Ratio",
        version=mrcr.VERSION,
        score=_mrcr,
        why_not=_not_mrcr,
    ),
    "graphwalks_f1": _of_graphwalks(
        "GraphWalks F1", lambda text, right: graphwalks.f1(graphwalks.read_strict(text), right)
    ),
    "graphwalks_flexible_f1": _of_graphwalks(
        "GraphWalks F1, any line",
        lambda text, right: graphwalks.f1(graphwalks.read_flexible(text), right),
    ),
    "graphwalks_harness_f1": _of_graphwalks(
        "GraphWalks F1, as the harness scores", graphwalks.harness_f1
    ),
    "graphwalks_card_f1": _of_graphwalks(
        "GraphWalks F1, as the card scores", graphwalks.card_f1, graphwalks.CARD_VERSION
    ),
    "nolima_contains": Rule(
        title="NoLiMa contains",
        value_label="Accuracy",
        version=nolima.VERSION,
        score=lambda sample, text: nolima.contains(text, sample.answers),
    ),
    "helmet_substring": Rule(
        title="HELMET substring match",
        value_label="Accuracy",
        version=helmet.VERSION,
        score=_helmet,
    ),
    "lveval": Rule(
        title="LV-Eval score",
        value_label="Score",
        version=lveval.VERSION,
        score=_lveval,
        why_not=_not_lveval,
    ),
    "locomo_f1": Rule(
        title="LoCoMo F1",
        value_label="F1",
        version=locomo.VERSION,
        score=_locomo,
        why_not=lambda sample: (
            None
            if sample.task in locomo.TASKS
            else f"task {sample.task!r} is no category of LoCoMo's; there are: "
            f"{', '.join(locomo.TASKS)}"
        ),
    ),
    "personamem_letter": Rule(
        title="PersonaMem letter",
        value_label="Accuracy",
        version=personamem.VERSION,
        score=_personamem,
    ),
}

LONGBENCH: Mapping[str, str] = {
    **dict.fromkeys(
        ("narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique", "triviaqa"),
        "qa_f1",
    ),
    "multifieldqa_zh": "qa_f1_zh",
    **dict.fromkeys(("gov_report", "qmsum", "multi_news", "samsum"), "rouge"),
    **dict.fromkeys(("dureader", "vcsum"), "rouge_zh"),
    **dict.fromkeys(("trec", "lsht"), "classification"),
    "passage_count": "count",
    "passage_retrieval_en": "retrieval",
    "passage_retrieval_zh": "retrieval_zh",
    **dict.fromkeys(("lcc", "repobench-p"), "code_sim"),
}
_NEEDLES: Mapping[str, str] = {
    **dict.fromkeys(
        ("passkey", "number_string", "kv_retrieval", "math_find", "math_calc", "code_run"),
        "infinitebench",
    ),
    **dict.fromkeys(("vt", "cwe", "fwe"), "ruler_recall"),
    "qa": "ruler_any",
}


def _infinitebench_task(task: str) -> str | None:
    return "infinitebench" if task in infinitebench.RULES["v2"] else None


def _needles_task(task: str) -> str | None:
    return "ruler_recall" if task.startswith("niah_") else _NEEDLES.get(task)


SUITES: Mapping[str, Callable[[str], str | None]] = {
    "longbench": LONGBENCH.get,
    "longbench2": lambda task: "longbench2_choice",
    "infinitebench": _infinitebench_task,
    "needles": _needles_task,
    "mrcr": lambda task: "mrcr_ratio",
    "graphwalks": lambda task: "graphwalks_f1" if task in graphwalks.TASKS else None,
    "nolima": lambda task: "nolima_contains",
    "babilong": lambda task: "babilong",
    "helmet": lambda task: (
        "ruler_recall" if task.startswith("niah_") else "helmet_substring" if task else None
    ),
    "lveval": lambda task: "lveval" if task in lveval.RULES else None,
    "locomo": lambda task: "locomo_f1" if task in locomo.TASKS else None,
    "longmemeval": lambda task: None,  # its rule is a judge: longmemeval_judge
    "beam": lambda task: None,  # so is its: beam_rubric, beam_event_order
    "personamem": lambda task: "personamem_letter",
}
