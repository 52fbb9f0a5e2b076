"""The execution of a run by Ray Data: pipeline, workers, shared services, cluster."""
