"""Shows a run of any size in the browser: the report's page, whose samples come from a read-only
server on this machine."""

from memray_eval.report.view.run_view import View, viewing
from memray_eval.report.view.server import serving

__all__ = ["View", "serving", "viewing"]
