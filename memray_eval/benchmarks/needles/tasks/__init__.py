"""The needle tasks. One has a depth if one needle can be placed; else (niah_multivalue,
niah_multiquery, vt, math_find, math_calc, code_run, cwe, fwe) depth is null."""

from functools import partial

from memray_eval.benchmarks.needles.plan import Task
from memray_eval.benchmarks.needles.tasks.documents import qa
from memray_eval.benchmarks.needles.tasks.frequency import cwe, fwe
from memray_eval.benchmarks.needles.tasks.magic import VARIANTS, among_decoys, in_text
from memray_eval.benchmarks.needles.tasks.numbers import code_run, math_calc, math_find
from memray_eval.benchmarks.needles.tasks.retrieval import kv_retrieval, number_string, passkey, vt

TASKS = {
    "passkey": Task(passkey),
    "number_string": Task(number_string),
    "kv_retrieval": Task(kv_retrieval),
    "math_find": Task(math_find, has_depth=False),
    "math_calc": Task(math_calc, has_depth=False),
    "code_run": Task(code_run, has_depth=False),
    **{
        name: Task(
            partial(among_decoys if variant.haystack == "decoys" else in_text, variant),
            has_depth=variant.n_needed == 1,
            needs_all=variant.n_needed > 1,
        )
        for name, variant in VARIANTS.items()
    },
    "vt": Task(vt, has_depth=False, needs_all=True),
    "cwe": Task(cwe, has_depth=False, needs_all=True),
    "fwe": Task(fwe, has_depth=False, needs_all=True),
    "qa": Task(qa),
}
