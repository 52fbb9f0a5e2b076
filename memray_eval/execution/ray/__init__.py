"""The execution of a run by Ray Data: the pipeline, its workers, the services they share, the
cluster."""
