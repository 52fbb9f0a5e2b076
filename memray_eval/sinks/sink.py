"""What every sink does."""

from __future__ import annotations

from typing import Protocol

from memray_eval.results.run_folder import RunFolder


class Sink(Protocol):
    """One place that scores go to."""

    def send(self, folder: RunFolder) -> int:
        """Sends what the place does not have yet of a run that has a summary, and returns how many
        scores (or figures, of a sink that takes no scores) that were. May raise anything."""
        ...
