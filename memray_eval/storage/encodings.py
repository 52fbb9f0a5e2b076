"""Files of text as UTF-8, whatever encoding they are written in."""

from __future__ import annotations

import codecs
import io
from typing import Any

from pyarrow import fs

from memray_eval.storage.paths import DamagedFile, ForwardFile, open_reader

# By what a file begins with; UTF-32's mark begins with UTF-16's
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# By which of four bytes are no null, as in text that begins with two letters or signs of ASCII
_UNMARKED = {b"\1\0\1\0": "utf-16-le", b"\0\1\0\1": "utf-16-be"}
_STEP_BYTES = 64 << 10


class _RecodedFile(ForwardFile):
    """The UTF-8 bytes of a text in another encoding. Raises DamagedFile with the byte."""

    def __init__(self, filesystem: fs.FileSystem, path: str, encoding: str) -> None:
        self._filesystem, self._path, self._encoding = filesystem, path, encoding
        self._rewind()

    def _rewind(self) -> None:
        self._stream = open_reader(self._filesystem, self._path)
        self._decoder = codecs.getincrementaldecoder(self._encoding)()
        self._ready, self._at, self._n_read = b"", 0, 0

    def _read(self, size: int) -> bytes:
        while not self._ready:
            data = self._stream.read(_STEP_BYTES)
            self._ready = self._recode(data)
            if not data:
                break
        data, self._ready = self._ready[:size], self._ready[size:]
        self._at += len(data)
        return data

    def _recode(self, data: bytes) -> bytes:
        waiting = len(self._decoder.getstate()[0])
        try:
            text = self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            byte = self._n_read - waiting + error.start
            raise DamagedFile(
                f"not {self._encoding} at byte {byte}; say which --encoding"
            ) from None
        self._n_read += len(data)
        return text.encode("utf-8", "surrogatepass")


def find_encoding(filesystem: fs.FileSystem, path: str, encoding: str = "") -> str:
    """As the byte order mark says, else `encoding`, else UTF-16 if so it looks; "" for UTF-8."""
    with open_reader(filesystem, path) as file:
        begin = file.peek(4)[:4]
    marked = next((name for mark, name in _MARKS.items() if begin.startswith(mark)), None)
    named = marked or encoding or _UNMARKED.get(bytes(map(bool, begin)), "")
    return "" if not named or codecs.lookup(named).name == "utf-8" else named


def open_text(
    filesystem: fs.FileSystem, path: str, start: int = 0, encoding: str = ""
) -> io.BufferedReader:
    """Opens a text in `encoding` ("": UTF-8) as UTF-8, from that byte. Raises as `open_reader`."""
    if not encoding:
        return open_reader(filesystem, path, start)
    recoded: Any = _RecodedFile(filesystem, path, encoding)
    file = io.BufferedReader(recoded, buffer_size=1 << 20)
    file.seek(start)
    return file
