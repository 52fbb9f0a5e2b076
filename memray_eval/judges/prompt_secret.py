"""The secret of a cache folder, which makes the nonces of judge prompts: no judged text knows them,
and prompts of every session begin alike. No call is remembered by it."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pyarrow import fs

from memray_eval.errors import ConfigError, ResourceError, reason_of
from memray_eval.storage.paths import is_object_store, locate, translate_cloud_errors, write_whole

SECRET_BYTES = 32
_PREFIX = "prompt-secret-"
# Two that begin in one moment each see what the other wrote by then
SETTLE_S = 1.0
_HEX = re.compile(rb"[0-9a-f]{64}\s*")


def secret_beside(file: str) -> bytes:
    """The secret beside the file of paid calls, made if there is none. Raises ResourceError if
    it cannot be read or written, ConfigError where it is none."""
    path = Path(f"{file}.secret")
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
                stream.write(_new_secret())
            try:
                with suppress(FileExistsError):  # another process was faster: its secret counts
                    os.link(draft, path)
            finally:
                draft.unlink()
        return _parse(path.read_bytes(), str(path))
    except OSError as error:
        raise ResourceError(
            f"the secret of judge prompts {path} cannot be used: {reason_of(error)}; name another "
            "file (--set judging.cache=PATH), or keep no verdicts (--no-cache)"
        ) from None


def secret_in(folder: str, sleep: Callable[[float], None] = time.sleep) -> bytes:
    """The secret in a folder of segments, made if there is none. An object store has no exclusive
    create here (pyarrow has no conditional PUT): of several secrets the first by name, which begins
    with the time, counts for all. Raises ResourceError or ConfigError as secret_beside."""
    filesystem, inner = locate(folder.rstrip("/"))
    try:
        with translate_cloud_errors(folder):
            if not (names := _names_in(filesystem, inner)):
                if not is_object_store(filesystem):
                    filesystem.create_dir(inner, recursive=True)
                name = f"{_PREFIX}{time.time() * 1000:015.0f}-{secrets.token_hex(8)}"
                write_whole(filesystem, f"{inner}/{name}", _new_secret())
                sleep(SETTLE_S)
                names = _names_in(filesystem, inner)
            with filesystem.open_input_stream(f"{inner}/{names[0]}") as stream:
                return _parse(stream.read(), f"{folder}/{names[0]}")
    except OSError as error:
        raise ResourceError(
            f"the secret of judge prompts in {folder} cannot be used: {reason_of(error)}"
        ) from None


def _names_in(filesystem: fs.FileSystem, inner: str) -> list[str]:
    infos = filesystem.get_file_info(fs.FileSelector(inner, allow_not_found=True))
    return sorted(info.base_name for info in infos if info.base_name.startswith(_PREFIX))


def _new_secret() -> bytes:
    return secrets.token_hex(SECRET_BYTES).encode()


def _parse(data: bytes, path: str) -> bytes:
    if not _HEX.fullmatch(data):
        raise ConfigError(
            f"{path} is no secret of judge prompts (64 hex digits); delete it, and "
            "another is made: no call is paid again for it"
        )
    return bytes.fromhex(data.decode())
