"""Memory facts used: how much of what is known of the user does the response use, and what?

value = keys of the memory that the response uses / all its keys. It needs no labels, and says how
much is used, not if it should be: `memory_utilization` and `memory_conduct` say that. By tag, for
memories of up to 50 keys: the share of the responses to whose sample a key belongs that use it. A
judge is asked as for `memory_utilization`; a key whose quote the response does not hold is not
counted. An empty response uses nothing."""

from dataclasses import replace

from memray_eval.metric import (
    TAG,
    Aggregates,
    Columns,
    MetricValue,
    Pooled,
    Verified,
    ratio,
    section,
    sums_and_means,
)
from memray_eval.metrics.assistant import memory_utilization
from memray_eval.metrics.assistant.memory_utilization import MemoryUtilizationJudgment
from memray_eval.types import Response, Sample

TAGGED = 50  # keys of a memory, which a summary lists one by one


def verify(judgment: MemoryUtilizationJudgment, sample: Sample, response: Response) -> Verified:
    return memory_utilization.verify(judgment, sample, response)._replace(parts={}, hidden="")


def measure(judgment: MemoryUtilizationJudgment, sample: Sample, response: Response) -> MetricValue:
    used = set(judgment.cited_keys) & set(sample.memory)
    tags = sample.memory if len(sample.memory) <= TAGGED else ()
    return MetricValue(
        len(used) / len(sample.memory),
        {
            "facts_used": float(len(used)),
            "facts": float(len(sample.memory)),
            **{f"{TAG}{key}": float(key in used) for key in tags},
        },
    )


def aggregate(columns: Columns) -> Aggregates:
    used, facts = (float(columns[name].sum()) for name in COUNTS)
    share = {"facts_used": ratio(used, facts)}
    return sums_and_means(COUNTS)(columns).model_copy(update={"micro": share})


COUNTS = ("facts_used", "facts")
METRIC = replace(
    memory_utilization.METRIC,
    title="MEMORY FACTS USED",
    value_label="Facts Used",
    applies=lambda sample: None,
    verify=verify,
    measure=measure,
    anchors={1.0: "every fact of the memory is used", 0.0: "none is"},
    parts=COUNTS,
    aggregate=aggregate,
    pooled=Pooled("facts", COUNTS, lambda columns: (columns["facts_used"], columns["facts"])),
    layout=(
        section(
            ("Share of Facts Used", "micro.facts_used", "score", "says how much, not if rightly"),
            ("Facts Used", "extras.total_facts_used", "count"),
            ("Facts Used per Answer", "extras.average_facts_used", "average"),
            ("Facts per Memory", "extras.average_facts", "average"),
            ("Total Samples", "n_scored", "count"),
        ),
    ),
)
