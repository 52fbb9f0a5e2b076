"""Reports a run folder that cannot be read by a message instead of a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from memray_eval.errors import DataError
from memray_eval.storage.paths import translate_cloud_errors


@contextmanager
def readable(path: str, told: str = "") -> Iterator[None]:
    """Wraps the listing and reading of a run's records: a part that disappears or is broken, or a
    cloud that does not answer, raises a DataError that begins with the text `told`."""
    try:
        with translate_cloud_errors(path):
            yield
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{told or f'the records of {path} cannot be read'}: {error}") from None
