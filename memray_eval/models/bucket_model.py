"""Models that lie in a bucket: copied into the cache folder of the machine that needs them."""

from __future__ import annotations

import fcntl
import hashlib
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from pyarrow import fs

from memray_eval.config.environment import cache_dir
from memray_eval.errors import ConfigError
from memray_eval.storage.paths import locate, translate_cloud_errors

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx")


@cache
def fetch_model(url: str, weights: bool) -> Path:
    """The folder of a model at a URL such as s3://BUCKET/PATH, without its `weights` (what
    tokenizers need) or whole; copied once by name, size and time of its files. Raises ConfigError:
    no model there, access denied; ResourceError: no answer; OSError: no room on the disk."""
    with translate_cloud_errors(url):
        source, path = locate(url)
        selector = fs.FileSelector(path, allow_not_found=True)
        files = [
            info
            for info in source.get_file_info(selector)
            if info.is_file and (weights or not info.base_name.endswith(WEIGHTS))
        ]
        if "config.json" not in {info.base_name for info in files}:
            raise ConfigError(f"{url} holds no model: there is no {url.rstrip('/')}/config.json")
        listing = sorted((info.base_name, info.size, info.mtime_ns) for info in files)
        key = hashlib.blake2b(repr((url, listing)).encode(), digest_size=8).hexdigest()
        folder = cache_dir() / "models" / f"{Path(path).name}-{key}"
        folder.parent.mkdir(parents=True, exist_ok=True)
        with open(f"{folder}.lock", "w") as lock:  # engines of a node copy it once
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                _copy(source, files, folder)
    return folder


def _copy(source: fs.FileSystem, files: Sequence[fs.FileInfo], folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".pending-") as work:
        (pending := Path(work, "model")).mkdir()
        paths = ([info.path, str(pending / info.base_name)] for info in files)
        with ThreadPoolExecutor(8) as threads:
            list(
                threads.map(lambda pair: fs.copy_files(*pair, source, fs.LocalFileSystem()), paths)
            )
        pending.rename(folder)
