"""Judging through the providers' batch APIs, at half the price and within a day.

A batch is a way to fill the store of paid calls: what is missing there is written to files, sent,
waited for and kept; then records are judged as ever, and find their verdicts. So juries, repeats,
scoring and resuming know nothing of batches.

`port.py` is a provider's batch API as a run sees it, one file a provider speaks it; `spool.py`
packs calls into files, within the provider's limits; `journal.py` keeps in the run's folder what
was sent; `runner.py` finds the calls by a rehearsal, sends, waits and collects."""
