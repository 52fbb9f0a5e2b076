"""What a run found, for people: from summary.json and the records, never from the run's memory."""
