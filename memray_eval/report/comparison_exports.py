"""A comparison for a review or CI: as Markdown, and its gates as JUnit XML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from xml.etree import ElementTree

from memray_eval.analysis.comparing.models import Comparison, Flip, GateResult
from memray_eval.report.comparison_console import figures_section
from memray_eval.report.comparison_verdict import verdict, verdict_of_all
from memray_eval.report.html.why import shorten
from memray_eval.report.sections import Table
from memray_eval.text_processing.printable import escape_controls
from memray_eval.types import Record

WORST = 3  # answers
_KINDS = {"FAIL": "failure", "INCONCLUSIVE": "error"}
Texts = Mapping[str, Mapping[tuple[str, str], Record]]  # by side, then by sample id and task


def to_markdown(comparison: Comparison, worst: Mapping[str, Sequence[Flip]], texts: Texts) -> str:
    """The head, what came of gates, a table of each side, and its `worst` answers."""
    return "\n".join(_lines(comparison, worst, texts)) + "\n"


def _lines(
    comparison: Comparison, worst: Mapping[str, Sequence[Flip]], texts: Texts
) -> Iterator[str]:
    says = [verdict(comparison, common) for common in comparison.common]
    for text in filter(None, (verdict_of_all(comparison), *says)):
        yield from (_escape(text), "")
    yield from (f"- {_escape(str(result))}" for result in comparison.gates)
    yield from (f"- warning: {_escape(warning)}" for warning in comparison.warnings)
    for common in comparison.common:
        yield from (
            "",
            f"## {_escape(common.other)} (B) against {_escape(comparison.baseline)} (A)",
        )
        table = figures_section(comparison, common).parts[0]
        if isinstance(table, Table):
            head, *rows = ([_escape(cell) for cell in row] for row in table.rows)
            rule = ["---"] * len(head)
            yield from ("", *(f"| {' | '.join(row)} |" for row in (head, rule, *rows)))
        metric = comparison.rows_of(common.other)[0].metric
        for flip in worst.get(common.other, ()):
            yield from (
                "",
                f"### {_escape(f'{metric} {flip.a:g} to {flip.b:g}: {flip.sample_id}')}",
            )
            yield from _describe_unit(comparison, common.other, flip, texts)


def _describe_unit(comparison: Comparison, other: str, flip: Flip, texts: Texts) -> Iterator[str]:
    first = texts.get(comparison.baseline, {}).get((flip.sample_id, flip.task))
    second = texts.get(other, {}).get((flip.other_id or flip.sample_id, flip.task))
    if first is not None:
        yield from _quote("asked", first.sample.query)
    for name, record in (("A", first), ("B", second)):
        if record is not None:
            yield from _quote(name, record.response.text if record.response else "")


def _quote(name: str, text: str) -> Iterator[str]:
    """A text as a block of code, which no text within ends."""
    shown = (f"    {escape_controls(line)}" for line in shorten(text).splitlines())
    yield from ("", f"{name}:", "", *(shown if text.strip() else ["    (nothing)"]))


def _escape(text: str) -> str:
    flat = escape_controls(" ".join(text.split()))
    for sign in "\\`*_|<[#":
        flat = flat.replace(sign, f"\\{sign}")
    return flat


def to_junit(comparison: Comparison) -> str:
    """A test case a gate and side: FAIL is a failure, INCONCLUSIVE an error; what may fail, and
    does not pass, is skipped."""
    kinds = [_kind_of(result) for result in comparison.gates]
    counts = {f"{kind}s": str(kinds.count(kind)) for kind in ("failure", "error")}
    counts |= {"tests": str(len(kinds)), "skipped": str(kinds.count("skipped"))}
    suite = ElementTree.Element("testsuite", {"name": "memray-eval compare", **counts})
    for result, kind in zip(comparison.gates, kinds, strict=True):
        gate, _, said = map(escape_controls, result.text.partition(": "))
        where = f"{comparison.baseline}.{result.other}"
        case = {"name": gate, "classname": escape_controls(where)}
        element = ElementTree.SubElement(suite, "testcase", case)
        if kind:
            ElementTree.SubElement(element, kind, {"message": f"{result.outcome}: {said}"})
    return str(ElementTree.tostring(suite, "utf-8"), "utf-8")


def _kind_of(result: GateResult) -> str:
    if result.outcome == "PASS":
        return ""
    return "skipped" if result.tier == "may" else _KINDS[result.outcome]
