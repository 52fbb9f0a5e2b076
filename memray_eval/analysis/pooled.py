"""What each score adds to the figure that stands for its metric, as two columns: part and whole. A
mean's are the value and 1; a pooled metric's come from the score's parts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memray_eval.metric import Pooled
from memray_eval.ports import FloatArray

# SQL over columns `part` and `whole`, a row a score: the figure, and its standard error as
# metric.linearise_ratio has it. Where the whole is 1 they are the mean's.
MEAN = "sum(part) / nullif(sum(whole), 0)"
STDERR = f"""sqrt(abs(var_samp(part) - 2 * {MEAN} * covar_samp(part, whole)
    + pow({MEAN}, 2) * var_samp(whole)) / count(part)) / nullif(avg(whole), 0)"""


def part_columns(parts: pa.MapArray) -> dict[str, FloatArray]:
    """Returns, by part, one figure per score, 0 for a score without that part."""
    offsets = parts.offsets.to_numpy()
    score = np.repeat(np.arange(len(parts)), np.diff(offsets))
    entries = slice(offsets[0], offsets[-1])
    part = parts.keys[entries].dictionary_encode()  # a no-op if it was read as codes
    names = part.dictionary.to_pylist()
    figures = np.zeros((len(names), len(parts)))
    figures[part.indices.to_numpy(), score] = (
        parts.items[entries].fill_null(0.0).to_numpy(zero_copy_only=False)
    )
    return dict(zip(names, figures, strict=True))


def shares(
    scores: pa.StructArray, codes: npt.NDArray[np.integer], pooled: Mapping[int, Pooled]
) -> tuple[FloatArray, FloatArray]:
    """Part and whole of each score, NaN where it has no value. `codes` names each score's metric;
    those in `pooled` are ratios of sums, for which `scores` must have parts."""
    values = pc.struct_field(scores, "value").to_numpy(zero_copy_only=False)
    part, whole = values.copy(), np.where(np.isnan(values), np.nan, 1.0)
    if not pooled:
        return part, whole
    parts = part_columns(pc.struct_field(scores, "parts"))
    nothing = np.zeros(len(values))
    for code, ratio in pooled.items():
        rows = (codes == code) & ~np.isnan(values)
        if rows.any():
            columns = {name: parts.get(name, nothing)[rows] for name in ratio.parts}
            part[rows], whole[rows] = ratio.share(columns)
    return part, whole
