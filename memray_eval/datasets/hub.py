"""Fetches datasets of the Hugging Face hub to this machine, once."""

from __future__ import annotations

import zipfile
from pathlib import Path

from memray_eval.config.environment import cache_dir
from memray_eval.errors import DataError

HUB = "hf://"
_WANTED = ["*.jsonl", "*.json", "*.parquet", "*.arrow", "*.zip"]


def fetch_dataset(path: str) -> str:
    """Fetches the dataset hf://OWNER/NAME and unpacks its zip files (LongBench has data.zip).
    Returns the folder on this machine. Raises DataError if the hub does not answer or has no such
    dataset."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    name = path.removeprefix(HUB).removeprefix("datasets/").strip("/")
    folder = cache_dir() / "datasets" / name.replace("/", "--")
    try:
        snapshot_download(name, repo_type="dataset", allow_patterns=_WANTED, local_dir=folder)
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(
            f"{path} cannot be fetched: {reason}. Download it elsewhere and name its folder as the "
            "dataset."
        ) from None
    for archive in folder.rglob("*.zip"):
        _unpack(archive)
    return str(folder)


def _unpack(archive: Path) -> None:
    target = archive.with_suffix("")
    if not target.exists():
        pending = target.with_name(f"{target.name}.pending")
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(pending)
        pending.rename(target)
