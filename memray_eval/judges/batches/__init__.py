"""Judging through the providers' batch APIs, at half the price and within a day.

A batch fills the store of paid calls, in which records that are judged afterwards find their
verdicts: juries, repeats, scoring and resuming know nothing of batches.

`port.py` is a provider's batch API as a run sees it, and one file a provider speaks it;
`journal.py` packs calls into files and keeps what was sent in the run's folder; `runner.py` runs.
"""
