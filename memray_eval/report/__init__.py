"""Words and pictures of a run, from summary.json and the records, never from the run's memory."""
