"""Samples in a Parquet file: read back as they were, written whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from memray_eval.benchmarks.generator.generate import samples
from memray_eval.benchmarks.generator.parquet import ROW_GROUP_BYTES, check_writable, write
from memray_eval.benchmarks.generator.plan import Plan
from memray_eval.benchmarks.generator.resources import Resources
from memray_eval.benchmarks.needles.generator.tasks import NEEDLES, TASKS
from memray_eval.datasets.parsing import parse_sample
from memray_eval.datasets.sources import entries, whole
from memray_eval.errors import ConfigError
from memray_eval.types import Sample


def test_samples_are_read_back_as_they_were(resources: Resources, tmp_path: Path) -> None:
    plan = Plan(
        task_set=NEEDLES,
        tasks=tuple(TASKS),
        languages=NEEDLES.languages,
        lengths=(2048,),
        depths=(0, 100),
    )
    created, path = list(samples(plan, resources)), str(tmp_path / "new" / "n.parquet")
    written = write(created, path)
    assert (written.samples, written.context_bytes) == (
        len(created),
        sum(len((s.context or "").encode()) for s in created),
    )
    (shard,) = whole(path)
    assert [parse_sample(entry.raw, "needles") for entry in entries(shard)] == created


@pytest.mark.heavy
def test_row_groups_are_bounded(tmp_path: Path) -> None:
    size = ROW_GROUP_BYTES // 3
    rows = (Sample(id=str(n), query="q", context=f"{n}" * size) for n in range(7))
    path = tmp_path / "n.parquet"
    write(rows, str(path))
    with pq.ParquetFile(path) as file:
        groups = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    assert groups == [2, 2, 2, 1]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_file_is_whole_or_not_there(tmp_path: Path, error: type[BaseException]) -> None:
    def broken() -> Iterator[Sample]:
        yield Sample(id="a", query="q", context="c")
        raise error

    with pytest.raises(error):
        write(broken(), str(tmp_path / "n.parquet"))
    assert list(tmp_path.iterdir()) == []


def test_what_may_not_be_written(tmp_path: Path) -> None:
    path = tmp_path / "n.parquet"
    check_writable(str(path), force=False)
    path.write_bytes(b"mine")
    with pytest.raises(ConfigError, match="--force"):
        check_writable(str(path), force=False)
    check_writable(str(path), force=True)
    with pytest.raises(ConfigError, match=r"must end in \.parquet"):
        check_writable(str(tmp_path / "n.jsonl"), force=False)
    (tmp_path / "d.parquet").mkdir()
    with pytest.raises(ConfigError, match="is a folder"):
        check_writable(str(tmp_path / "d.parquet"), force=True)
