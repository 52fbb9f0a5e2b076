"""Paths that may be local or a cloud URL (s3://, gs://, ...), through pyarrow's file systems. Keys,
endpoint and region come from the environment (AWS_ACCESS_KEY_ID, ...), never from a URL."""

import codecs
import io
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import lru_cache, partial
from typing import IO, Any, TypeVar, cast

import pyarrow as pa
from pyarrow import fs

from memray_eval.errors import ConfigError, DataError, EvalError, ResourceError, nearest

# Prefix of a file of a submitted job: relative to the working directory, which on each node is its
# own copy of the job's package.
JOB_FILE = "job://"
S3, GCS, ANONYMOUS = "s3", "gcs", "anonymous@"
GCS_RETRY_S = 20  # the library's default is 15 minutes
REQUESTS_AT_ONCE = 32  # of a process: they mostly wait
IN_MEMORY_BYTES = 8 << 20  # a longer file is buffered on the local disk before it is uploaded
_SCHEMES = {"s3": S3, "gs": GCS, "gcs": GCS}
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
UNPACK_BYTES = 256 << 10  # how much of a compressed file is decompressed in one step
_STEP_BYTES = 64 << 10  # of a text that is recoded
BOMB_BYTES, BOMB_RATIO = 256 << 20, 200  # a file that grows past both limits is refused
_ENVIRONMENT = (
    "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION",
    "AWS_ACCESS_KEY_ID", "AWS_PROFILE",
)  # fmt: skip
# pyarrow raises one exception type for every cloud error; the error code is only in its text.
_CODE = re.compile(r"AWS Error (\w+)|google::cloud::Status\((\w+)")
_NOT_ALLOWED = re.compile(
    r"DENIED|ACCESS_KEY|SIGNATURE|TOKEN|CREDENTIAL|UNAUTHENTICATED|OAuth2 access token"
)
_NO_BUCKET = re.compile(r"NO_SUCH_BUCKET|Bucket '.*' not found|bucket does not exist")


def locate(path: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URL, probed once a process, and the path in it. Raises
    ConfigError for an unknown scheme, keys in it or denied access, ResourceError for no answer."""
    path = path.removeprefix(JOB_FILE)
    if "://" not in path:
        return fs.LocalFileSystem(), os.path.abspath(path)
    scheme, _, inner = path.partition("://")
    if (kind := _SCHEMES.get(scheme)) is None:
        return _locate_uri(path)
    is_anonymous, inner = inner.startswith(ANONYMOUS), inner.removeprefix(ANONYMOUS).strip("/")
    if "?" in inner or "@" in inner.partition("/")[0] or not inner:
        raise ConfigError(
            f"a {scheme}:// URL is {scheme}://BUCKET/PATH: keys, endpoint and region are set in "
            "the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL, "
            "AWS_REGION)"
        )
    environment = tuple(os.environ.get(name) for name in _ENVIRONMENT)
    return _open_cloud(kind, inner, is_anonymous, environment), inner


def _locate_uri(path: str) -> tuple[fs.FileSystem, str]:
    scheme, _, inner = path.partition("://")
    if ":" in inner.partition("/")[0].rpartition("@")[0]:
        raise ConfigError(
            f"a {scheme}:// URL with a password in it is not taken: it would be written to configs "
            "and logs"
        )
    try:
        return cast(tuple[fs.FileSystem, str], fs.FileSystem.from_uri(path))
    except (ValueError, OSError) as error:
        raise ConfigError(f"cannot open {path}: {error}") from None


@lru_cache(maxsize=1024)
def _open_cloud(
    kind: str, inner: str, is_anonymous: bool, environment: tuple[str | None, ...]
) -> fs.FileSystem:
    """Opens a cloud file system and checks that the path in it can be reached."""
    url, bucket = f"{'s3' if kind == S3 else 'gs'}://{inner}", inner.partition("/")[0]
    with translate_cloud_errors(url):
        filesystem = _make_filesystem(kind, bucket, is_anonymous, environment)
        # The path is probed before the bucket: a key may be limited to a prefix of the bucket.
        if filesystem.get_file_info(inner).type == fs.FileType.NotFound:
            try:
                is_missing = filesystem.get_file_info(bucket).type == fs.FileType.NotFound
            except OSError:  # the bucket may exist without being visible to this key
                is_missing = False
            if is_missing:
                raise ConfigError(f"{url}: there is no bucket {bucket!r}; make it, or name another")
    return filesystem


@lru_cache(maxsize=64)
def _make_filesystem(
    kind: str, bucket: str, is_anonymous: bool, environment: tuple[str | None, ...]
) -> fs.FileSystem:
    # As many connections, too; pyarrow's default of eight is for disks
    pa.set_io_thread_count(max(REQUESTS_AT_ONCE, pa.io_thread_count()))
    if kind == GCS:
        return fs.GcsFileSystem(
            anonymous=is_anonymous, retry_time_limit=timedelta(seconds=GCS_RETRY_S)
        )
    variables = dict(zip(_ENVIRONMENT, environment, strict=True))
    # pyarrow itself reads these only when it is given a URL
    endpoint = variables["AWS_ENDPOINT_URL_S3"] or variables["AWS_ENDPOINT_URL"]
    region = (
        variables["AWS_REGION"]
        or variables["AWS_DEFAULT_REGION"]
        or (None if endpoint else fs.resolve_s3_region(bucket))
    )
    # allow_delayed_open: a small file takes one PUT, not the three calls of a multipart upload
    return fs.S3FileSystem(
        anonymous=is_anonymous, region=region, endpoint_override=endpoint, allow_delayed_open=True
    )


def is_object_store(filesystem: fs.FileSystem) -> bool:
    """True if uploads are atomic on this file system and folders need not be created."""
    return filesystem.type_name in (S3, GCS)


@contextmanager
def translate_cloud_errors(path: str) -> Iterator[None]:
    """Translates a cloud's errors inside the block: ConfigError if access is denied or the bucket
    is missing, ResourceError if the cloud cannot be reached. Others pass."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, FileExistsError):
        raise
    except OSError as error:
        if "://" not in path or path.startswith("file://"):
            raise
        raise _explain_cloud_error(path, str(error)) from None


def did_you_mean(path: str, kinds: Collection[fs.FileType], *more: str) -> str:
    """Suggests the most similar name beside a missing path, or of `more`; "" without any."""
    parent, _, name = path.rstrip("/").rpartition("/")
    filesystem, inner = locate(parent or ".")
    with translate_cloud_errors(path):
        infos = filesystem.get_file_info(fs.FileSelector(inner, allow_not_found=True))
    like = nearest(name, [*more, *(info.base_name for info in infos if info.type in kinds)])
    return f"did you mean {parent}{'/' if parent else ''}{like}?" if like else ""


@contextmanager
def readable(path: str, message: str = "") -> Iterator[None]:
    """Wraps the listing and reading of a run's records: a part that disappears or is broken, or a
    cloud that does not answer, raises a DataError that begins with `message`."""
    try:
        with translate_cloud_errors(path):
            yield
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{message or f'the records of {path} cannot be read'}: {error}") from None


def _explain_cloud_error(url: str, text: str) -> EvalError:
    code = next((first or second for first, second in _CODE.findall(text)), "no code")
    is_s3 = url.startswith("s3://")
    if _NO_BUCKET.search(text):
        return ConfigError(f"{url}: there is no such bucket; make it, or name another")
    # of S3 only the code: the text may quote a path that contains one of these words
    if _NOT_ALLOWED.search(code if is_s3 else text):
        whose = "there is no AWS_ACCESS_KEY_ID in the environment; a key"
        if os.environ.get("AWS_ACCESS_KEY_ID"):
            whose = "its key"
        if url.startswith("gs://"):
            whose = "the account of GOOGLE_APPLICATION_CREDENTIALS"
        return ConfigError(
            f"{url}: access denied ({code}): {whose} must be allowed to list, read, write and "
            "delete there"
        )
    where, mend = "", "the network, or set AWS_ENDPOINT_URL" if is_s3 else "the network"
    at = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if is_s3 and at:
        where, mend = f" at {at}", "AWS_ENDPOINT_URL and the network"
    return ResourceError(f"{url} cannot be reached{where} ({code}); check {mend}")


class DamagedFile(OSError):
    """A compressed file is damaged, cut off, not compressed, or a decompression bomb."""


# pyarrow raises the same type for damaged data as for a failing network: its text tells them apart.
_DAMAGED = re.compile(r"zlib|zstd|compressed (?:stream|data)", re.IGNORECASE)


class _MadeFile(io.RawIOBase):
    """A file of the pieces that `begin` makes as it is read. Seeking backward begins again. What is
    raised at a byte is raised at it every time."""

    def __init__(self, begin: Callable[[], Generator[bytes, None, None]]) -> None:
        self._begin = begin
        self._pieces, self._ready, self._at = begin(), b"", 0
        self._error: OSError | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _read(self, size: int) -> bytes:
        if self._error is not None:
            raise self._error
        try:
            self._ready = self._ready or next(self._pieces, b"")
        except OSError as error:
            self._error = error
            raise
        data, self._ready = self._ready[:size], self._ready[size:]
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END:
            raise io.UnsupportedOperation("the end of the file is not known")
        target = offset + (self._at if whence == io.SEEK_CUR else 0)
        if target < self._at:
            self._pieces.close()
            self._pieces, self._ready, self._at = self._begin(), b"", 0
            self._error = None
        while self._at < target and self._read(target - self._at):
            pass
        return self._at

    def close(self) -> None:
        self._pieces.close()
        super().close()


def _unpack(filesystem: fs.FileSystem, path: str, compression: str) -> Generator[bytes, None, None]:
    """The bytes of a compressed file, in steps of UNPACK_BYTES, the same in each pass: a damaged
    file can be read up to the same byte every time. Raises DamagedFile there."""
    most = max(BOMB_BYTES, BOMB_RATIO * int(filesystem.get_file_info(path).size or 0))
    n_unpacked = 0
    with filesystem.open_input_stream(path, compression=compression) as stream:
        try:
            while data := bytes(stream.read(UNPACK_BYTES)):
                if (n_unpacked := n_unpacked + len(data)) > most:
                    raise DamagedFile(
                        f"it unpacks to more than {BOMB_RATIO} times its size, as a decompression "
                        "bomb does; if it is meant to, unpack it and name the unpacked file"
                    )
                yield data
        except OSError as error:
            if not isinstance(error, DamagedFile) and _DAMAGED.search(str(error)):
                raise DamagedFile(f"the packed file is damaged or cut off: {error}") from None
            raise


def _recode(filesystem: fs.FileSystem, path: str, encoding: str) -> Generator[bytes, None, None]:
    """The UTF-8 bytes of a text in another encoding. Raises DamagedFile with the byte."""
    decoder, n_read, data = codecs.getincrementaldecoder(encoding)(), 0, b"\0"
    with open_reader(filesystem, path) as stream:
        while data:
            data, waiting = stream.read(_STEP_BYTES), len(decoder.getstate()[0])
            try:
                text = decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                byte = n_read - waiting + error.start
                raise DamagedFile(f"not {encoding} at byte {byte}; say which --encoding") from None
            n_read += len(data)
            if text:
                yield text.encode("utf-8", "surrogatepass")


def open_reader(
    filesystem: fs.FileSystem, path: str, start: int = 0, encoding: str = ""
) -> io.BufferedReader:
    """Opens a buffered binary reader from byte `start`, decompressing .gz and .zst; a text in an
    `encoding` is read as UTF-8. Raises OSError, also for anything but a regular file: reading a
    FIFO could block without end."""
    if filesystem.type_name == "local" and not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(f"{path} is not a regular file (a folder, FIFO, socket or device)")
    file: Any
    if encoding:
        file = _MadeFile(partial(_recode, filesystem, path, encoding))
    elif compression := _COMPRESSIONS.get(os.path.splitext(path)[1]):
        file = _MadeFile(partial(_unpack, filesystem, path, compression))
    else:
        file = filesystem.open_input_file(path)
    if start:
        file.seek(start)
    return io.BufferedReader(file, buffer_size=1 << 20)


def write_whole(filesystem: fs.FileSystem, path: str, data: bytes) -> None:
    """Writes a file so that it appears whole or not at all. Overwrites. Raises OSError."""
    with whole_file(filesystem, path) as file:
        file.write(data)


@contextmanager
def whole_file(filesystem: fs.FileSystem, path: str) -> Iterator[IO[bytes]]:
    """Opens a file that appears when the block ends, and not at all if it raises: locally under a
    pending name, then moved; for an object store one upload. Overwrites. Raises OSError."""
    if is_object_store(filesystem):
        with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES) as buffer:
            yield cast(IO[bytes], buffer)
            buffer.seek(0)
            # compression=None: by default pyarrow compresses whatever is named .zst or .gz, even
            # if it is compressed already
            with filesystem.open_output_stream(path, compression=None) as stream:
                shutil.copyfileobj(buffer, stream, IN_MEMORY_BYTES)
        return
    # the random part: containers that share a folder may have equal process ids
    pending = f"{path}.pending-{os.getpid()}-{secrets.token_hex(3)}"
    try:
        with filesystem.open_output_stream(pending, compression=None) as stream:
            yield stream
    except BaseException:
        if filesystem.get_file_info(pending).type == fs.FileType.File:
            filesystem.delete_file(pending)
        raise
    filesystem.move(pending, path)


@contextmanager
def write_atomically(path: str, mend: str = "name another place") -> Iterator[IO[bytes]]:
    """Opens a file for writing at a path or cloud URL; if the block raises, what was there stays.
    Raises ConfigError, with `mend` as the way out, for a place that cannot be written."""
    filesystem, inner = locate(path)
    with translate_cloud_errors(path), ExitStack() as stack:
        try:
            if "://" not in path and filesystem.get_file_info(inner).type == fs.FileType.Directory:
                raise ConfigError(f"{path} is a folder; {mend}")
            file = stack.enter_context(whole_file(filesystem, inner))
        except OSError as error:
            if "://" in path:
                raise
            raise ConfigError(f"cannot write {path}: {error}; {mend}") from None
        yield file


Item = TypeVar("Item")
Result = TypeVar("Result")


def map_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], at_once: int
) -> Iterator[Result]:
    """Yields results in the order of the items, with up to `at_once` calls under way or not yet
    taken. Raises what `function` raises; calls that have not begun by then are not made."""
    ahead: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(at_once) as pool:
        try:
            for item in items:
                if len(ahead) == at_once:
                    yield ahead.popleft().result()
                ahead.append(pool.submit(function, item))
            while ahead:
                yield ahead.popleft().result()
        finally:
            for call in ahead:
                call.cancel()


# By what a file begins with; UTF-32's mark begins with UTF-16's
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# By which of four bytes are no null, as in text that begins with two letters or signs of ASCII
_UNMARKED = {b"\1\0\1\0": "utf-16-le", b"\0\1\0\1": "utf-16-be"}


def find_encoding(filesystem: fs.FileSystem, path: str, encoding: str = "") -> str:
    """The byte order mark's encoding, else `encoding`, else UTF-16 if it looks so; "" for UTF-8."""
    with open_reader(filesystem, path) as file:
        begin = file.peek(4)[:4]
    marked = next((name for mark, name in _MARKS.items() if begin.startswith(mark)), None)
    named = marked or encoding or _UNMARKED.get(bytes(map(bool, begin)), "")
    return "" if not named or codecs.lookup(named).name == "utf-8" else named
