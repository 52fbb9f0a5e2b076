"""Shows runs of any size in the browser, from a read-only server on this machine: the list of a
folder's runs, comparisons, and of each run the report's page with all of its samples."""

from memray_eval.report.view.run_view import View, open_view
from memray_eval.report.view.server import serving, serving_runs

__all__ = ["View", "open_view", "serving", "serving_runs"]
