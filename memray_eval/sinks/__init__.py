"""The places that a run's scores go to beside its folder: OpenTelemetry, MLflow, Inspect's logs.
What was sent is kept in the folder (at least once, by stable ids); a failed sink is a note."""
