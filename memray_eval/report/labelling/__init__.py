"""People's labels of a run's units: which units are labelled, what was said of them, and how far
the raters agree. `memray-eval view RUN --label` serves it."""

from memray_eval.report.labelling.session import LabelSession, open_labelling

__all__ = ["LabelSession", "open_labelling"]
