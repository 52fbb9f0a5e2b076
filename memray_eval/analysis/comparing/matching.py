"""Matches the units of two runs that read different files by what they ask."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memray_eval.analysis.comparing.models import Side
from memray_eval.analysis.scores import first_of_each, unit_keys
from memray_eval.analysis.where import common_rows
from memray_eval.results.run_folder import RunFolder
from memray_eval.storage.paths import readable

# What a unit asks; a long context is not in the records
_ASKED = ("task", "query", "memory", "history")


def match_units(base: Side, base_run: RunFolder, other: Side, other_run: RunFolder) -> Side:
    """Gives the units of `other` the keys of the baseline's units that ask the same, if more units
    agree in that than in id and question. Otherwise units are matched by id, and those that ask
    something else under the same id have no partner."""
    asked_a, asked_b = (
        _questions(side, run) for side, run in ((base, base_run), (other, other_run))
    )
    rows_a, rows_b = common_rows(base.scores, other.scores)
    is_same = pc.equal(asked_a.take(rows_a), asked_b.take(rows_b)).to_numpy(zero_copy_only=False)
    places = pc.index_in(asked_b, value_set=_unique(asked_a))
    by_question = places.is_valid().to_numpy(zero_copy_only=False) & pc.is_in(
        asked_b, value_set=_unique(asked_b)
    ).to_numpy(zero_copy_only=False)
    if by_question.sum() > is_same.sum():
        first = pc.index_in(asked_b, value_set=asked_a)  # unique, so the first is the one
        keys = base.scores.units["key"].combine_chunks().take(first)
        told = f"{by_question.sum():,} units ask the same and are compared, whatever their ids"
        return _with_keys(other, pc.if_else(by_question, keys, None), told)
    if not is_same.any():
        return replace(other, matching="no two units ask the same: they are compared by their ids")
    if is_same.all():
        return other
    keep = np.ones(other.scores.units.num_rows, np.bool_)
    keep[rows_b[~is_same]] = False
    told = f"{(~is_same).sum():,} units ask something else under the same id and are left out"
    keys = other.scores.units["key"].combine_chunks()
    return _with_keys(other, pc.if_else(keep, keys, None), told)


def _questions(side: Side, run: RunFolder) -> pa.Array:
    """What each unit of a side asks, in the order of its scores, as one text."""
    with readable(run.path):
        table = run.records().to_table(
            columns=["sample_id", "candidate", *_ASKED],
            filter=pc.field("candidate") == side.candidate,
        )
    asked = pc.binary_join_element_wise(*(pc.fill_null(table[name], "") for name in _ASKED), "\x1f")
    keys = unit_keys(table)
    kept = first_of_each(keys)
    rows = pc.index_in(side.scores.units["key"], value_set=keys.take(kept).combine_chunks())
    return asked.take(kept).combine_chunks().take(rows.combine_chunks())


def _unique(texts: pa.Array) -> pa.Array:
    """The texts that stand only once."""
    counted = texts.value_counts()
    return counted.field("values").filter(pc.equal(counted.field("counts"), 1))


def _with_keys(side: Side, keys: pa.Array, matching: str) -> Side:
    """The side with other keys. A null is replaced by a key that no other unit has."""
    alone = pa.array([f"\x1e{place}" for place in range(len(keys))], pa.string())
    units = side.scores.units
    column = units.column_names.index("key")
    changed = units.set_column(column, "key", pa.chunked_array([pc.coalesce(keys, alone)]))
    return replace(side, scores=replace(side.scores, units=changed), matching=matching)
