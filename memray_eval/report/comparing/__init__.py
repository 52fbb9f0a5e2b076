"""Two or more candidates, of one run or of several, compared on the units that they share: what differs, whether that could be
chance, and what makes the runs hard to compare. Units are common by sample id and task."""

from memray_eval.report.comparing.console import render
from memray_eval.report.comparing.gates import Gate, failures, parse_gate
from memray_eval.report.comparing.pairing import compare
from memray_eval.report.comparing.values import Comparison, Flip, MetricComparison, Side

__all__ = ["Comparison", "Flip", "Gate", "MetricComparison", "Side", "compare", "failures", "parse_gate", "render"]
