"""A run folder that cannot be read is said, not a crash."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from memray_eval.errors import DataError
from memray_eval.storage.paths import translate_cloud_errors


@contextmanager
def readable(path: str, told: str = "") -> Iterator[None]:
    """While a run's records are listed or read: a part that goes or is broken, or a cloud that does
    not answer, is a DataError, which begins with what was `told`."""
    try:
        with translate_cloud_errors(path):
            yield
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{told or f'the records of {path} cannot be read'}: {error}") from None
