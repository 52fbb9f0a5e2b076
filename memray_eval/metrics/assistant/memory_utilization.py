"""Memory utilization: are the memories that should be used used, and the others left alone?
Precision, recall and F1.

Source of the formulas: seed 000, metric 1. U = cited keys, R = required, F = forbidden; TP = |U &
R|, FP = |U & F|, FN = |R| - TP. Neutral keys count nowhere. P = TP / (TP + FP), 1 when nothing is
cited; recall = TP / |R|, 1 when nothing is required; F1 = 2PR / (P + R), 0 when both are 0."""

import re
from collections import Counter

import numpy as np
from pydantic import BaseModel

from memray_eval.metric import (
    Aggregates,
    Columns,
    JudgedMetric,
    Measured,
    MetricValue,
    OfflineEstimate,
    Pooled,
    Verified,
    ratio,
    section,
)
from memray_eval.metrics._evidence import QuotedText
from memray_eval.metrics._judging import WITH_MEMORY, judge_silence, show
from memray_eval.metrics._memory import (
    KeyCitation,
    candidate_keys,
    find_citations,
    find_verbatim,
    matching_texts,
    reads_words,
)
from memray_eval.ports import FloatArray, Vectors
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.text_processing.numerals import draw_order
from memray_eval.types import Response, Sample

RUBRIC = """
List every key of KEYS that the response uses. MEMORY holds what is known of the user; of some keys nothing is known. A key is
used when the response states, paraphrases or plainly relies on what the memory holds under it, on one of several values too,
and also when it states it wrongly; general advice that would read the same without the memory uses nothing. A key that is not
in MEMORY is used only when the response claims a value or a state of it for this user ("your potassium was 5.4"): not when it
asks for it, says that it is not known, or advises to measure or discuss it.
First give in evidence, for each key that is used, the words of the response that use it, exactly, and the key by its exact name as
in KEYS. Then say in reasoning what you counted as a use and what not, if that is not plain. Then list the keys in cited_keys. If
none is used, leave both lists empty.
"""  # noqa: E501


class MemoryUtilizationJudgment(BaseModel):
    """Which memory keys the response uses."""

    evidence: list[KeyCitation]
    reasoning: str
    cited_keys: list[str]


def prompt(sample: Sample, response: Response) -> JudgePrompt:
    """The judge sees the names of all keys that count, in an order drawn from the sample's id:
    their roles (required, forbidden) would tell it what to find, and without the names of those
    that memory lacks it could only guess them."""
    keys = "\n".join(draw_order(sample, candidate_keys(sample)))
    return JudgePrompt(RUBRIC, {"KEYS": keys, **show(sample, response, *WITH_MEMORY)})


def rules(sample: Sample, response: Response, vectors: Vectors) -> MemoryUtilizationJudgment:
    """Cited keys by normalised matching of values, numbers with units, key phrases and paraphrase,
    and by claims of a value or a state: see metrics/_memory.py.

    On 104 labelled sentences that were held back from tuning (two labellers blind to the rules,
    kappa 1.0; words alone; on the 80 that the rules were tuned on in brackets): keys that memory
    lacks, recall 0.07 (1 of 15) [0.70]; keys in memory, precision 1.00 (16 of 16), recall 0.41 (16
    of 39) [1.00, 0.74]. So a made-up value is mostly missed; asking, denying and advising are
    hardly ever taken for a use (1 of 46). `python -m tests.bench.estimates` prints the figures."""
    evidence = find_citations(sample, response, vectors)
    return MemoryUtilizationJudgment(
        evidence=evidence,
        reasoning="matched by the rules",
        cited_keys=[citation.key for citation in evidence],
    )


def why_not(sample: Sample, response: Response) -> str | None:
    """The rules know English words; in another language they find values as they are written."""
    if reads_words(sample, response) or find_verbatim(sample, response):
        return None
    return "the rules read English, and no value of the memory stands in the response word for word"


def _fold(key: str) -> str:
    """A key's name whatever its case and what parts its words."""
    return re.sub(r"[\s_\-\u2010-\u2015]+", "", key.casefold())


def verify(judgment: MemoryUtilizationJudgment, sample: Sample, response: Response) -> Verified:
    """Takes out keys that neither memory nor the lists know (part `invented_keys`: they are neither
    TP nor FP), and those whose quote the response does not hold; of a forbidden one nothing can be
    measured then. A key without a quote stays: there is nothing to look for. The judge may write a
    key's name in another case, or part its words otherwise ("Daytime Sleep")."""
    candidates = candidate_keys(sample)
    folds = Counter(map(_fold, candidates))

    def name_of(written: str) -> str:
        alike = () if written in candidates or folds[_fold(written)] != 1 else candidates
        return next((key for key in alike if _fold(key) == _fold(written)), written)

    cited = dict.fromkeys(map(name_of, judgment.cited_keys))
    evidence = [item.model_copy(update={"key": name_of(item.key)}) for item in judgment.evidence]
    kept = [key for key in cited if key in candidates]
    text = QuotedText(response.text)
    quotes = {citation.key: citation.quote for citation in evidence}
    shown = {citation.key for citation in evidence if text.holds(citation.quote)}
    unfound = {key: f"{key}: {quotes[key]}" for key in kept if key in quotes and key not in shown}
    quoted = [key for key in kept if key not in unfound]
    return Verified(
        judgment.model_copy(update={"cited_keys": quoted, "evidence": evidence}),
        pieces=sum(key in quotes for key in kept),
        unverified=tuple(unfound.values()),
        parts={INVENTED: len(cited) - len(kept)},
        hidden=next((unfound[key] for key in sample.forbidden_keys if key in unfound), ""),
    )


def measure(judgment: MemoryUtilizationJudgment, sample: Sample, response: Response) -> MetricValue:
    """The sample's F1, with tp, fp and fn."""
    used = set(judgment.cited_keys)
    tp = len(used & set(sample.required_keys))
    fp = len(used & set(sample.forbidden_keys))
    fn = len(sample.required_keys) - tp
    parts = {"tp": tp, "fp": fp, "fn": fn}
    columns = {name: np.array([float(count)]) for name, count in parts.items()}
    return MetricValue(value=float(f1_scores(columns)[0]), parts=parts)


def precisions(columns: Columns, wrong: str = "fp") -> FloatArray:
    """TP / (TP + FP); with "fn" in its place the recalls."""
    whole = columns["tp"] + columns[wrong]
    return np.divide(columns["tp"], whole, out=np.ones_like(whole), where=whole > 0)


def f1_scores(columns: Columns) -> FloatArray:
    precision, recall = precisions(columns), precisions(columns, "fn")
    total = precision + recall
    return np.divide(2 * precision * recall, total, out=np.zeros_like(total), where=total > 0)


def pooled_f1(columns: Columns) -> tuple[FloatArray, FloatArray]:
    """F1 = 2 TP / (2 TP + FP + FN), a ratio of sums."""
    twice = 2 * columns["tp"]
    return twice, twice + columns["fp"] + columns["fn"]


def aggregate(columns: Columns) -> Aggregates:
    """Micro: sums of tp, fp, fn, then P/R/F1. Macro: means of the samples' P/R/F1, where a sample
    without a citation has a precision of 1.0. No figure of nothing, either way: no
    precision if no key was cited in the run, no recall if none was required."""
    sums = {name: np.array([columns[name].sum()]) for name in COUNTS}
    has_keys = any(total[0] for total in sums.values())
    invented = float(columns[INVENTED].sum()) if INVENTED in columns else 0.0
    precision = ratio(sums["tp"][0], sums["tp"][0] + sums["fp"][0])
    recall = ratio(sums["tp"][0], sums["tp"][0] + sums["fn"][0])
    return Aggregates(
        micro={
            "precision": precision,
            "recall": recall,
            "f1": float(f1_scores(sums)[0]) if has_keys else None,
            **{name: float(sums[name][0]) for name in COUNTS},
        },
        macro={
            "precision": None if precision is None else float(precisions(columns).mean()),
            "recall": None if recall is None else float(precisions(columns, "fn").mean()),
            "f1": float(f1_scores(columns).mean()) if has_keys else None,
        },
        extras={INVENTED: invented},
    )


COUNTS = ("tp", "fp", "fn")
INVENTED = "invented_keys"
METRIC = JudgedMetric(
    title="MEMORY UTILIZATION ACCURACY",
    value_label="F1",
    scale=(0, 1),
    requires=("memory",),
    applies=lambda sample: (
        None
        if sample.required_keys or sample.forbidden_keys
        else "the sample has no required_keys and no forbidden_keys, which say what to use; "
        "memory_facts_used needs none"
    ),
    by_task=True,
    judgment=MemoryUtilizationJudgment,
    prompt=prompt,
    verify=verify,
    measure=measure,
    on_empty=judge_silence(MemoryUtilizationJudgment),
    version=2,
    anchors={
        1.0: "every required key is used, and no forbidden one",
        0.0: "no required key is used",
    },
    preferred_judge="anthropic/claude-opus-4-5",
    estimate=OfflineEstimate(
        rules=rules,
        texts=matching_texts,
        why_not=why_not,
        measured=Measured(
            n=104,
            what="sentences",  # held back from tuning, as the docstring of `rules` has it
            recall=0.31,
            specificity=0.98,
            kappa=0.29,
        ),
    ),
    parts=(*COUNTS, INVENTED),
    aggregate=aggregate,
    pooled=Pooled("keys", COUNTS, pooled_f1),
    layout=(
        section(
            ("Precision", "micro.precision"),
            ("Recall", "micro.recall"),
            ("F1 Score", "micro.f1"),
            ("Total TP", "micro.tp", "count"),
            ("Total FP", "micro.fp", "count"),
            ("Total FN", "micro.fn", "count"),
            ("Invented Keys", "extras.invented_keys", "count", "counted apart"),
            heading="Micro-averaged (recommended):",
        ),
        section(
            ("Precision", "macro.precision"),
            ("Recall", "macro.recall"),
            ("F1 Score", "macro.f1"),
            heading="Macro-averaged (for reference):",
        ),
    ),
)
