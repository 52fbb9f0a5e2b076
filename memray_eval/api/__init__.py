"""memray_eval from Python: what `import memray_eval` offers, by the names it has there."""

from memray_eval.api.running import evaluate, run, score
from memray_eval.api.runs import CheckFailed, Run, open_run

__all__ = ["CheckFailed", "Run", "evaluate", "open_run", "run", "score"]
