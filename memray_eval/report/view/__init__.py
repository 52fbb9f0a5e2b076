"""A run of any size in the browser: the report's page, and its samples asked of a read-only server
on this machine."""

from memray_eval.report.view.run_view import View, viewing
from memray_eval.report.view.server import serving

__all__ = ["View", "serving", "viewing"]
