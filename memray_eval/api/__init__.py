"""memray_eval from Python: what `import memray_eval` offers, by the names it has there."""

from memray_eval.api.asynchronous import (
    calibrate_async,
    compare_async,
    evaluate_async,
    generate_async,
    run_async,
)
from memray_eval.api.calibrating import Calibration, calibrate
from memray_eval.api.comparing import Comparison, compare
from memray_eval.api.running import evaluate, generate, run, score
from memray_eval.api.runs import CheckFailed, Run, open_run

__all__ = [
    "Calibration",
    "CheckFailed",
    "Comparison",
    "Run",
    "calibrate",
    "calibrate_async",
    "compare",
    "compare_async",
    "evaluate",
    "evaluate_async",
    "generate",
    "generate_async",
    "open_run",
    "run",
    "run_async",
    "score",
]
