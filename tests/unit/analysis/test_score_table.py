"""Scores as columns: each beside its unit, whatever the block that it was read in."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from memray_eval.analysis.score_table import fields_of_shares, is_fallback, read_score_tables
from memray_eval.metrics import pick
from tests.build import build_dataset, build_record, build_sample, build_score


def test_each_score_is_beside_its_unit_in_every_block(tmp_path: Path) -> None:
    relevance, failed = build_score("relevance", 0.5), build_score("politeness", None)
    first, second = build_score("politeness", 4.0), build_score("politeness", 2.0)
    scores = [(first, relevance), (), (relevance, second), (failed,)]
    records = [build_record(build_sample(id=f"s{n}"), "Well.", *of) for n, of in enumerate(scores)]
    dataset = build_dataset(tmp_path / "r", records)  # of two rows a block
    tables = list(read_score_tables(dataset, ["sample_id"], ["metric", "value"]))
    expected = [["s0", "s1"], ["s2", "s3"]]
    assert [table.units["sample_id"].to_pylist() for table in tables] == expected
    assert [table.units.schema.names for table in tables] == [["sample_id"]] * 2
    values = [
        table.by_unit(table.codes(["politeness"]) == 0, table.values).tolist() for table in tables
    ]
    assert np.array_equal(values, [[4.0, np.nan], [2.0, np.nan]], equal_nan=True)


def test_a_field_that_a_file_lacks_is_null(tmp_path: Path) -> None:
    scores = pa.array([[{"metric": "relevance"}], []])
    pq.write_table(pa.table({"unit_id": ["a", "b"], "scores": scores}), tmp_path / "a.parquet")
    fields = ("metric", "judge", "cost_usd")
    (table,) = read_score_tables(pads.dataset(tmp_path), ["unit_id"], fields)
    assert table.column("cost_usd").to_pylist() == [None]
    assert table.column("cost_usd").type == pa.float64()
    assert table.is_judge(is_fallback).tolist() == [False]
    assert table.has(np.array([True])).tolist() == [True, False]


def test_only_pooled_metrics_need_parts() -> None:
    assert fields_of_shares(pick(["relevance"])) == ("metric", "value")
    assert fields_of_shares(pick(["groundedness"])) == ("metric", "value", "parts")
