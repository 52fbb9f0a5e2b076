"""Finds users' objects: in a file of theirs, in a package, or behind an entry point. A file travels
as its text, with those that it imports from its own folder, to Ray's workers."""

import ast
import asyncio
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from memray_eval.errors import ConfigError, describe_error, nearest, reason_of
from memray_eval.own_code import own_code

ENTRY_POINTS = "memray_eval"
_MODULE = "memray_eval_own_"
_TEXTS = (".md", ".txt")
# Users' functions that are not async wait in these
_THREADS = ThreadPoolExecutor(64, thread_name_prefix="own-code")
_imported_own: dict[str, tuple[Path, str]] = {}  # the folder and text of own files' modules
_folders: set[str] = set()  # in sys.path for own files
_copies: list[tempfile.TemporaryDirectory[str]] = []  # kept while their modules may be used


@dataclass(frozen=True)
class OwnSource:
    """A user's file: its path, and the text of it (the first) and of the files below its folder
    that it imports or names, by relative path. Or an installed module, without texts."""

    place: str
    sources: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """Its name for people, on every machine the same."""
        return Path(self.place).name if self.sources else self.place

    @property
    def digest(self) -> str:
        """The digest of all texts, or of the module's: it changes when any of them does."""
        text = "\0".join(part for source in self.sources for part in source)
        content = text.encode("utf-8", "surrogatepass")
        if not self.sources and (path := getattr(self.load(), "__file__", None)):
            content = Path(path).read_bytes() if Path(path).is_file() else b""
        return hashlib.blake2b(content, digest_size=8).hexdigest()

    def load(self) -> ModuleType:
        """The module, in this process. Raises ConfigError if it cannot be imported."""
        return load_own_file(self) if self.sources else _load_module(self.place)

    def get(self, attribute: str) -> Any:
        """The module's attribute of that name. Raises ConfigError."""
        return attribute_of(self.load(), attribute, self.place)


@dataclass(frozen=True)
class OwnObject:
    """A user's object; `attribute` is "" if only its source is named."""

    source: OwnSource
    attribute: str = ""

    def load(self) -> Any:
        """The object, in this process. Raises ConfigError."""
        return self.source.get(self.attribute)

    def siblings(self) -> dict[str, Any]:
        """The objects that its source defines, by name. Raises ConfigError."""
        return vars(self.source.load())


def find_own_object(name: str) -> OwnObject | None:
    """The object of `file.py:ATTR`, `package.module:ATTR` or an entry point's name; None for any
    other name. Raises ConfigError if the file or module does not exist or cannot be imported."""
    reference = split_reference(entry_points().get(name, name))
    if reference is None:
        return None
    source, attribute = reference
    return OwnObject(find_source(source), attribute)


def find_source(source: str) -> OwnSource:
    """The file or module of that name. Raises ConfigError without one, or if it fails to import."""
    if source.endswith(".py"):
        return read_own_file(source)
    _load_module(source)
    return OwnSource(source)


async def call_own(fn: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a user's function, on this loop if it is async, else in a thread."""

    def call() -> Any:
        with own_code():
            return fn(*arguments)

    if inspect.iscoroutinefunction(fn):
        reply = call()
    else:
        reply = await asyncio.get_running_loop().run_in_executor(_THREADS, call)
    with own_code():
        return await reply if inspect.isawaitable(reply) else reply


def split_reference(name: str) -> tuple[str, str] | None:
    """The file or package of `path/to/file.py:ATTR`, `file.py` or `package.module:ATTR`, and the
    attribute, "" if none is named. None for a plain name."""
    source, _, attribute = name.rpartition(":") if ":" in name else (name, "", "")
    if source.endswith(".py"):
        return source, attribute
    is_module = all(part.isidentifier() for part in source.split("."))
    return (source, attribute) if attribute.isidentifier() and is_module else None


def read_own_file(path: str) -> OwnSource:
    """Reads a file and those that it imports from its folder. Raises ConfigError: no such file, or
    it is not Python, with the line."""
    folder, first = Path(path).parent, Path(path).name
    files: dict[str, str] = {}
    waiting = [first]
    while waiting:
        name = waiting.pop()
        if name in files:
            continue
        try:
            files[name] = (folder / name).read_text("utf-8-sig")
            tree = ast.parse(files[name])
        except FileNotFoundError:
            raise ConfigError(f"no file {path}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {folder / name}: {reason_of(error)}") from None
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None)
            where = f"{folder / name}, line {line}" if line else f"{folder / name}"
            raise ConfigError(
                f"{where}: not valid Python: {getattr(error, 'msg', error)}"
            ) from None
        waiting += sorted(
            {file for module in _imported(tree) for file in _files_of(folder, module)}
        )
        for text in _named_texts(tree, (folder / name).parent):
            files.setdefault(text.relative_to(folder).as_posix(), text.read_text("utf-8-sig"))
    rest = sorted(name for name in files if name != first)
    return OwnSource(os.path.abspath(path), tuple((name, files[name]) for name in (first, *rest)))


def _named_texts(tree: ast.AST, folder: Path) -> Iterator[Path]:
    """The text files beside a source that it names: the rubrics of its metrics."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        name = node.value
        if name.endswith(_TEXTS) and "\n" not in name and not Path(name).is_absolute():
            path = folder / name
            if ".." not in path.parts and path.is_file():
                yield path


def _imported(tree: ast.AST) -> Iterator[str]:
    """The top-level names of the modules that a source imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _files_of(folder: Path, module: str) -> Iterator[str]:
    """The files of a module or package in the folder; empty for an installed one."""
    if (folder / f"{module}.py").is_file():
        yield f"{module}.py"
    elif (folder / module / "__init__.py").is_file():
        for file in (folder / module).rglob("*.py"):
            yield file.relative_to(folder).as_posix()


class _Loader(SourceFileLoader):
    """Compiles a file as it is: bytecode beside it may be of another text."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


@cache
def load_own_file(file: OwnSource) -> ModuleType:
    """The file as a module, executed once a process: from its own path if it is the same there,
    else from a copy. Raises ConfigError that names the line that failed."""
    folder = Path(file.place).parent
    if any(_text_of(folder / name) != text for name, text in file.sources):
        folder = _write_copy(file)
    imported = _forget_others(file, folder)
    path = folder / file.sources[0][0]
    name = f"{_MODULE}{path.stem}_{file.digest}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_Loader(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    writes_none, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # as for _Loader
    try:
        with own_code():
            spec.loader.exec_module(module)
    except Exception as error:
        sys.modules.pop(module.__name__, None)
        raise ConfigError(
            f"{_place_of(error, file)}: cannot be imported: {describe_error(error)}"
        ) from error
    finally:
        sys.dont_write_bytecode = writes_none
    for name, (_, text) in imported.items():
        other = getattr(sys.modules.get(name), "__file__", None)
        if other is not None and _text_of(Path(other)) != text:
            sys.modules.pop(module.__name__)
            what = f"imports {name}, which is {other} here, not the file beside it"
            raise ConfigError(f"{file.place}: {what}; rename that")
    return module


def _forget_others(file: OwnSource, folder: Path) -> dict[str, tuple[Path, str]]:
    """Makes a file import the modules of its own folder, as they are now: drops what was imported
    under their names, and puts the folder before those of other files. Returns each module's folder
    and text by its name."""
    wanted = {
        ".".join(Path(name).with_suffix("").parts).removesuffix(".__init__"): (folder, text)
        for name, text in file.sources[1:]
        if name.endswith(".py")
    }
    wanted = {name: own for name, own in wanted.items() if name not in sys.stdlib_module_names}
    if any(_imported_own.get(name) != own for name, own in wanted.items()):
        for name in wanted:
            path = getattr(sys.modules.get(name), "__file__", None) or "/"
            if name in _imported_own or Path(path).is_relative_to(folder):
                sys.modules.pop(name, None)
        _imported_own.update(wanted)
    # Before the folders of other files, behind all else: it shadows nothing that is installed
    paths = [path for path in sys.path if path not in _folders or path != str(folder)]
    first = next((at for at, path in enumerate(paths) if path in _folders), len(paths))
    if str(folder) not in paths:
        paths.insert(first, str(folder))
        _folders.add(str(folder))
    sys.path[:] = paths
    importlib.invalidate_caches()
    return wanted


def _text_of(path: Path) -> str | None:
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None


def _write_copy(file: OwnSource) -> Path:
    """The file's sources in a folder of this process alone, which goes when it ends."""
    folder = tempfile.TemporaryDirectory(prefix=_MODULE, ignore_cleanup_errors=True)
    _copies.append(folder)
    for name, text in file.sources:
        path = Path(folder.name) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return Path(folder.name)


def _place_of(error: Exception, file: OwnSource) -> str:
    """The last line of the user's own files that an error passed through."""
    own = {Path(name).name for name, _ in file.sources}
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).name in own
    ]
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else file.place


def attribute_of(module: ModuleType, name: str, source: str) -> Any:
    """An attribute of a user's module. Raises ConfigError that lists what there is, without what
    it imports to define it: modules, and functions and classes of ours that are not its own."""
    if hasattr(module, name):
        return getattr(module, name)
    names = sorted(
        attribute
        for attribute, value in vars(module).items()
        if not (attribute.startswith("_") or isinstance(value, ModuleType))
        and not (
            isinstance(value, FunctionType | type)
            and value.__module__.startswith("memray_eval.")
            and value.__module__ != module.__name__
        )
    )
    if module.__name__.startswith("memray_eval."):
        names = [attribute for attribute in names if callable(getattr(module, attribute))]
        names = [attribute for attribute in names if attribute.islower()]
    hint = nearest(name, names)
    way_out = f"did you mean {hint!r}?" if hint else f"it has: {', '.join(names) or 'nothing'}"
    raise ConfigError(f"{source} defines no {name!r}; {way_out}")


def _load_module(name: str) -> ModuleType:
    """A module of an installed package. Raises ConfigError that says why it cannot be imported."""
    try:
        with own_code():
            return importlib.import_module(name)
    except Exception as error:
        raise ConfigError(f"{name} cannot be imported: {describe_error(error)}") from error


@cache
def entry_points() -> dict[str, str]:
    """Packages' [project.entry-points."memray_eval"]: name -> reference package.module:ATTR."""
    return {
        entry.name: entry.value for entry in importlib.metadata.entry_points(group=ENTRY_POINTS)
    }
