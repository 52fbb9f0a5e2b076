"""Metrics that are the caller's objects, as a file of code for other machines and resumed runs."""

import base64
import hashlib
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from memray_eval.datasets.reading import FOLDER
from memray_eval.errors import ConfigError, describe_error
from memray_eval.metric import JudgedMetric, Metric
from memray_eval.storage.paths import is_object_store, locate, write_whole

# A name or "file.py:NAME", a rubric, what computed_metric and judge_metric make, or a function of
# a sample and a response
MetricEntry: TypeAlias = str | Mapping[str, Any] | Metric | Callable[..., Any]

_live: dict[str, Any] = {}
_MODULE = '''\
"""{name}, as it was when the run began: an object of the caller's, by its bytes."""

from memray_eval.api.live import recall

{name} = recall({digest!r}, {data!r})
'''


def recall(digest: str, data: str) -> Any:
    """The object of a file that `to_entries` wrote: itself in the process that has it, else rebuilt
    from its bytes."""
    if digest not in _live:
        import cloudpickle

        _live[digest] = cloudpickle.loads(base64.b85decode(data))
    return _live[digest]


def to_entries(metrics: Sequence[MetricEntry], out: str) -> list[str | Mapping[str, Any]]:
    """The metrics as a job lists them; the code of objects is written below `out`. Raises
    ConfigError for one without a name, or that cannot be taken to other processes."""
    if isinstance(metrics, str):
        raise ConfigError(f"metrics is a text; write a list: [{metrics!r}]")
    return [_to_entry(metric, out) for metric in metrics]


def _to_entry(metric: MetricEntry, out: str) -> str | Mapping[str, Any]:
    if isinstance(metric, str | Mapping):
        return metric
    if isinstance(metric, JudgedMetric) and metric.described_by is not None:
        return dict(metric.described_by)
    name = metric.name if isinstance(metric, Metric) else getattr(metric, "__name__", "")
    if not (isinstance(metric, Metric) or callable(metric)):
        raise ConfigError(
            f"metrics: {metric!r:.60} is neither a name nor a metric nor a function of a sample "
            "and a response"
        )
    if not name.isidentifier():
        raise ConfigError(
            "metrics: a lambda or an object has no name; write computed_metric(fn, name=...)"
        )
    return f"{_write(name, metric, out)}:{name}"


def _write(name: str, metric: Any, out: str) -> str:
    """Writes an object as a file of code that is named by what is in it, and returns its path."""
    import cloudpickle

    try:
        with _by_value(metric):
            pickled = cloudpickle.dumps(metric)
    except Exception as error:
        raise ConfigError(
            f"metrics: {name} cannot be taken to other processes: {describe_error(error)}; write "
            f"it in a file, and name it: FILE.py:{name}"
        ) from None
    digest = hashlib.blake2b(pickled, digest_size=6).hexdigest()
    _live[digest] = metric
    text = _MODULE.format(name=name, digest=digest, data=base64.b85encode(pickled).decode())
    path = f"{out.rstrip('/')}/{FOLDER}/{name}_{digest}.py"
    filesystem, inner = locate(path)
    if is_object_store(filesystem):
        raise ConfigError(
            f"metrics: {name} is an object, and `out` is in the cloud: write it in a file, and "
            f"name it: FILE.py:{name}"
        )
    filesystem.create_dir(inner.rpartition("/")[0], recursive=True)
    write_whole(filesystem, inner, text.encode())
    return path


@contextmanager
def _by_value(metric: Any) -> Iterator[None]:
    """While an object is pickled: the module of its function goes along, unless it is installed."""
    import cloudpickle

    module = sys.modules.get(getattr(metric, "__module__", "") or "")
    if module is None or module.__name__ == "__main__" or _is_installed(module):
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _is_installed(module: ModuleType) -> bool:
    """True if any machine with the same packages has the module."""
    file = getattr(module, "__file__", None)
    if file is None or module.__name__.partition(".")[0] == "memray_eval":
        return True
    homes = {sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")}
    return any(Path(file).is_relative_to(home) for home in homes if home)
