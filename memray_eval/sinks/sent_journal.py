"""What a sink has sent of a run, kept in the run's folder."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import pyarrow as pa

from memray_eval.results.parts import Flags, unit_numbers
from memray_eval.results.run_folder import RunFolder


class SentJournal:
    """The ids of the events that the receiver at `place` has taken, in 8 bytes each.

    An id joins once the receiver has answered: a kill between the two sends it again, under the
    same id. Another place has a journal of its own. Raises DataError where one cannot be read."""

    def __init__(self, folder: RunFolder, kind: str, place: str) -> None:
        self._folder = folder
        self._name = f"{kind}-{blake2b(place.encode(), digest_size=4).hexdigest()}"
        rows = (table.column("event").to_pylist() for table in folder.read_sent(self._name))
        numbers = [unit_numbers(ids) for ids in rows]
        self._sent = np.unique(np.concatenate([np.zeros(0, np.uint64), *numbers]))

    def __len__(self) -> int:
        return len(self._sent)

    def are_sent(self, ids: Sequence[str]) -> Flags:
        """Which of these events the receiver has."""
        return np.isin(unit_numbers(ids), self._sent)

    def add(self, ids: Sequence[str]) -> None:
        """Writes down what the receiver has just taken."""
        self._folder.write_sent(self._name, pa.table({"event": pa.array(ids, pa.string())}))
        self._sent = np.union1d(self._sent, unit_numbers(ids))
