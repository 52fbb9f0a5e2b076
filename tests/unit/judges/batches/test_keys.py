from __future__ import annotations

from memray_eval.judges.batches.spool import CallEntry, CallStateIndex


def test_keys_stand_where_they_were_put_last() -> None:
    keys = CallStateIndex()
    keys.put(["a", "b"], "held")
    keys.put(["b"], "kept", "tag")
    assert (keys.get("a"), keys.get("b"), keys.get("c")) == (
        CallEntry("held", ""),
        CallEntry("kept", "tag"),
        None,
    )
    keys.free(["a"])
    assert keys.get("a") is None
    keys.close()
