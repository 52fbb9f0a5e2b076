"""Compares two or more candidates, of one run or several, on the units that they share: what
differs, whether that could be chance, and what makes the runs hard to compare. Two units are the
same if their sample id and task are."""

from memray_eval.analysis.comparing.models import Comparison, Flip, MetricComparison, Side
from memray_eval.analysis.comparing.paired_comparison import compare
from memray_eval.analysis.comparing.thresholds import Gate, failures, parse_gate

__all__ = [
    "Comparison",
    "Flip",
    "Gate",
    "MetricComparison",
    "Side",
    "compare",
    "failures",
    "parse_gate",
]
