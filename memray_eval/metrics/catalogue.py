"""What each metric is, in words: a line for a list, a page for one metric, a table in Markdown. All
of it comes from the metric, the docstring of its file, and measured.yaml."""

import importlib.resources
import re
from collections.abc import Iterable, Iterator
from datetime import date
from functools import cache
from inspect import getdoc
from textwrap import dedent, wrap

from pydantic import TypeAdapter

from memray_eval.config.strict_yaml import parse_yaml
from memray_eval.metric import ComputedMetric, JudgedMetric, Metric
from memray_eval.types import Frozen, Response, Sample

WIDTH = 80
NO_ESTIMATE = "no offline estimate"
# Where in our sources a thing stands
_SOURCE = re.compile(
    r"\s*Source( of the formulas)?:([^.]|(?<=\bal)\.)*\.|[:;] see (benchmarks|metrics)/\S+\w"
    r"|\s*See (benchmarks|metrics)/\S+"
)


class MeasuredAgreement(Frozen):
    """How far a judge agreed with people on `n` labels, by a version of a metric's rubric: `value`
    is what `figure` names, with its interval, and `command` measures it again."""

    metric: str
    rubric_version: int
    judge: str
    data: str
    n: int
    figure: str
    value: float
    low: float
    high: float
    date: date
    command: str

    def __str__(self) -> str:
        return (
            f"{self.figure} {self.value:.2f} ({self.low:.2f} to {self.high:.2f}) with {self.judge} "
            f"on {self.n} labels of {self.data}, by version {self.rubric_version} of the rubric, "
            f"{self.date}: {self.command}"
        )


@cache
def _all_measured() -> tuple[MeasuredAgreement, ...]:
    text = (importlib.resources.files(__package__) / "measured.yaml").read_text("utf-8")
    return TypeAdapter(tuple[MeasuredAgreement, ...]).validate_python(parse_yaml(text))


def measured_agreement(metric: str) -> list[MeasuredAgreement]:
    """The measurements of measured.yaml for a metric, the newest first."""
    entries = (entry for entry in _all_measured() if entry.metric == metric)
    return sorted(entries, key=lambda entry: entry.date, reverse=True)


def agreement_in_words(metric: str) -> list[str]:
    return [*map(str, measured_agreement(metric))] or ["not measured"]


def anchors_of(metric: Metric) -> list[tuple[str, str]]:
    """Each level that the metric says the look of, the best first, and what it says."""
    return [(f"{level:g}", metric.anchors[level]) for level in sorted(metric.anchors, reverse=True)]


def split_docstring(text: str | None) -> tuple[str, str]:
    """A docstring's first paragraph as one line, and the rest, without places in our sources."""
    first, _, rest = dedent(text or "").strip().partition("\n\n")
    about = _SOURCE.sub("", " ".join(first.split()))
    return " ".join(about.split()), _SOURCE.sub("", rest).strip()


def list_lines(metrics: Iterable[Metric]) -> Iterator[str]:
    """What each measures, its scale, who judges it and what an estimate is worth, by family."""
    family = None
    for metric in metrics:
        if metric.family != family:
            yield from ([] if family is None else [""])
            family = metric.family
            yield f"{family}:"
        level = "" if metric.level == "turn" else f"{level_of(metric)}; "
        yield f"  {metric.name}  ({scale_of(metric)}; {level}{judge_of(metric)})"
        yield from _wrapped(metric.about, "    ")
        if estimate := estimate_of(metric):
            yield from _wrapped(_in_words(estimate), "    ")


def _no_answer_in_words(metric: Metric) -> str:
    counts = f"without an answer a run counts {metric.scale[0]:g}"
    if isinstance(metric, JudgedMetric) and metric.pooled is not None:
        counts = (
            f"of an answer that is not there a run counts the {metric.pooled.whole} that it "
            "misses, and leaves it out if it misses none"
        )
    below = "; what is said below of an empty response is so with on_no_answer: score"
    return f"{counts} (on_no_answer: zero){below * ('mpty' in metric.formulas)}"


def page_lines(metric: Metric) -> Iterator[str]:
    """All that there is to know of a metric: its formulas, its rubric, its estimate."""
    yield f"{metric.name}: {metric.title.lower()}"
    yield ""
    yield from _wrapped(metric.about, "")
    yield ""
    figure = "the mean of the answers' scores"
    if metric.pooled is not None:
        whole = metric.pooled.whole
        figure = f"micro: one ratio over all {whole} of the run; {figure} is shown as macro"
    for name, value in (
        ("scale", f"{scale_of(metric)}, higher is better"),
        ("by", judge_of(metric)),
        ("needs", ", ".join(metric.requires) or "a response"),
        ("level", level_of(metric)),
        ("empty", _no_answer_in_words(metric)),
        ("figure", figure),
    ):
        yield from _wrapped(f"{name + ':':<8} {value}", "", " " * 9)
    texts = [metric.formulas]
    # what the functions say that make its figures
    for function in (getattr(metric, "measure", None), metric.aggregate):
        module = getattr(function, "__module__", "")
        if function is not None and module.endswith(f".{metric.name}"):
            texts.append(getdoc(function) or "")
    for text in filter(None, (_SOURCE.sub("", text).strip() for text in texts)):
        yield from ("", *text.split("\n"))
    if estimate := estimate_of(metric):
        yield from ("", *_wrapped(_in_words(estimate), ""))
    if isinstance(metric, JudgedMetric):
        if metric.estimate and (doc := getdoc(metric.estimate.rules)):
            yield from _SOURCE.sub("", doc).strip().split("\n")
        yield ""
        for line in agreement_in_words(metric.name):
            yield from _wrapped(f"Judge's agreement with people: {line}", "")
    yield from ("", "What a score looks like:") if metric.anchors else ()
    for level, text in anchors_of(metric):
        yield from _wrapped(f"{level}: {text}", "  ", "     ")
    if isinstance(metric, JudgedMetric):
        yield from _rubric_lines(metric)


def markdown_table(metrics: Iterable[Metric]) -> str:
    """A row a metric."""
    rows = [
        "| metric | what it measures | scale | level | by | estimate without a judge |",
        "|---|---|---|---|---|---|",
    ]
    for metric in metrics:
        estimate = estimate_of(metric)
        scale, level = scale_of(metric), level_of(metric)
        cells = (f"`{metric.name}`", metric.about, scale, level, judge_of(metric), estimate)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def scale_of(metric: Metric) -> str:
    return f"{metric.scale[0]:g} to {metric.scale[1]:g}"


def level_of(metric: Metric) -> str:
    """What of a session the metric scores."""
    return metric.level.replace("_", " ")


def judge_of(metric: Metric) -> str:
    """The judge of a metric, and which rubrics a run may choose from."""
    if not isinstance(metric, JudgedMetric):
        return "computed" if isinstance(metric, ComputedMetric) else "computed from embeddings"
    rubrics = f"; rubrics {', '.join(metric.rubrics)}" if metric.rubrics else ""
    return f"judge, best {metric.preferred_judge}{rubrics}"


def estimate_of(metric: Metric) -> str:
    """What the estimate of a judged metric, or a measured rule, is worth; "" for other metrics."""
    if isinstance(metric, ComputedMetric):
        return str(metric.measured or "")
    if not isinstance(metric, JudgedMetric):
        return ""
    return str(metric.estimate.measured) if metric.estimate else NO_ESTIMATE


def _in_words(estimate: str) -> str:
    return estimate if estimate == NO_ESTIMATE else f"estimate by rules: {estimate}"


def _rubric_lines(metric: JudgedMetric) -> Iterator[str]:
    nobody = Sample(id="-", query="-", memory={"-": "-"})
    for name in metric.rubrics or ("",):
        words = [name, f"version {metric.version}" if metric.version else ""]
        listed = ", ".join(filter(None, words))
        yield from ("", f"What a judge is told{f' ({listed})' if listed else ''}:")
        try:
            messages = metric.messages(nobody, Response(text="-"), metric.rubrics.get(name))
        except Exception:  # a user's own may need what its sample has
            yield "  (its prompt cannot be built without a sample)"
            return
        yield from (f"  {line}" for line in messages[0].content.strip().split("\n"))


def _wrapped(text: str, indent: str, further: str | None = None) -> list[str]:
    return wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent if further is None else further,
        break_on_hyphens=False,
        break_long_words=False,
    )
