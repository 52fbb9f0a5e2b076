"""Each line of tests/bench/batch_outcomes.py: how a batch ends, and what the run does then."""

from __future__ import annotations

import pytest

from tests.bench.batch_outcomes import CALLS, CASES, Case, play


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.provider}: {case.name}")
def test_an_outcome(case: Case) -> None:
    played = play(case)
    output = "\n".join(played.lines)
    assert (played.refused, played.no_verdict) == (case.refused, case.no_verdict), output
    assert played.verdicts == CALLS - case.refused - case.no_verdict, output
    stats = played.stats
    counts = (stats["n_batches"], stats["n_calls"], stats["n_live"], stats["paid_again"])
    assert counts == (case.batches, case.batched, case.live, case.paid_again), output
    assert played.hours <= case.hours, output
    assert not any(entry.is_open for entry in played.entries), output
