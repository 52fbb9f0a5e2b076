"""memray_eval: evaluate language models with a memory of their user, and long-context models, at
scale on Ray.

    import memray_eval as me

    done = me.evaluate("answers.csv", metrics=["relevance"], judge="rules")
    done.table().to_pandas()
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

from memray_eval._version import __version__ as __version__

if TYPE_CHECKING:
    from memray_eval.api import (
        Calibration,
        CheckFailed,
        Comparison,
        Run,
        calibrate,
        calibrate_async,
        compare,
        compare_async,
        evaluate,
        evaluate_async,
        generate,
        generate_async,
        open_run,
        run,
        run_async,
        score,
    )
    from memray_eval.benchmarks.own import suite
    from memray_eval.errors import EvalError
    from memray_eval.metrics.own import computed_metric, judge_metric

__all__ = [
    "Calibration",
    "CheckFailed",
    "Comparison",
    "EvalError",
    "Run",
    "calibrate",
    "calibrate_async",
    "compare",
    "compare_async",
    "computed_metric",
    "evaluate",
    "evaluate_async",
    "generate",
    "generate_async",
    "judge_metric",
    "open_run",
    "run",
    "run_async",
    "score",
    "suite",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())

# Loaded when they are used: the import of the package takes no time
_HOMES = dict.fromkeys(__all__, "memray_eval.api") | {
    "EvalError": "memray_eval.errors",
    "computed_metric": "memray_eval.metrics.own",
    "judge_metric": "memray_eval.metrics.own",
    "suite": "memray_eval.benchmarks.own",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        from memray_eval.errors import nearest

        hint = f"; did you mean {near!r}?" if (near := nearest(name, _HOMES)) else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
