"""People's labels of a run's units: which units are labelled, what was said of them, and how far
the raters agree. `memray-eval view RUN --label` serves it."""

from memray_eval.report.labelling.opening import open_labelling
from memray_eval.report.labelling.session import LabelSession

__all__ = ["LabelSession", "open_labelling"]
