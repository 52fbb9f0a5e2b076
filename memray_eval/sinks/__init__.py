"""The places that a run's scores go to beside its folder: OpenTelemetry, MLflow, Inspect's logs. A
sink reads the folder once a session has written it. What was sent is kept in the folder (at least
once, by ids that stay the same), and a sink that fails is a note of the run."""

from memray_eval.sinks.sending import Delivery, check_sinks, import_ahead, send_run, write_summary

__all__ = ["Delivery", "check_sinks", "import_ahead", "send_run", "write_summary"]
