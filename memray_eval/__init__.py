"""memray_eval: evaluate language models with a memory of their user, and long-context models, at
scale on Ray.

    import memray_eval as me

    done = me.evaluate("answers.csv", metrics=["relevance"], judge="rules")
    done.table().to_pandas()
"""

from __future__ import annotations

import importlib
import logging
import time
from typing import TYPE_CHECKING, Any

from memray_eval._version import __version__ as __version__

if TYPE_CHECKING:
    from memray_eval.api.calibrating import Calibration, calibrate
    from memray_eval.api.running import evaluate, evaluate_async, generate, run, score
    from memray_eval.api.runs import CheckFailed, Comparison, Run, compare, open_run
    from memray_eval.benchmarks.own import suite
    from memray_eval.errors import EvalError
    from memray_eval.metrics.own import computed_metric, judge_metric

IMPORTED_S = time.time()  # as a command begins
__all__ = [
    "Calibration", "CheckFailed", "Comparison", "EvalError", "Run", "calibrate", "compare",
    "computed_metric", "evaluate", "evaluate_async", "generate", "judge_metric", "open_run", "run",
    "score", "suite",
]  # fmt: skip
# Loaded when they are used: the import of the package takes no time
_MODULES = {
    "memray_eval.api.calibrating": "Calibration calibrate",
    "memray_eval.api.running": "evaluate evaluate_async generate run score",
    "memray_eval.api.runs": "CheckFailed Comparison Run compare open_run",
    "memray_eval.benchmarks.own": "suite",
    "memray_eval.errors": "EvalError",
    "memray_eval.metrics.own": "computed_metric judge_metric",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        from memray_eval.errors import nearest

        hint = f"; did you mean {near!r}?" if (near := nearest(name, _HOMES)) else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
