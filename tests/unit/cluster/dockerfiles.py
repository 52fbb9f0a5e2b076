"""What is wrong with a Dockerfile: read by BuildKit's own parser, then held to the rules that a
build or a review would find.

The parser (package dockerfile) splits and unfolds; which instructions and flags there are is
checked here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from string import Template
from typing import Any

import dockerfile

FLAGS = {
    "FROM": {"--platform"},
    "RUN": {"--mount", "--network", "--security"},
    "COPY": {"--from", "--chown", "--chmod", "--link", "--parents", "--exclude"},
    "HEALTHCHECK": {"--interval", "--timeout", "--start-period", "--start-interval", "--retries"},
}
SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL)S?$", re.IGNORECASE)


def complaints(text: str, root: Path) -> list[str]:
    """One line a fault, none for a good one. `root` is the build's context, with its
    .dockerignore."""
    try:
        commands = dockerfile.parse_string(text)
    except dockerfile.GoParseError as error:
        return [str(error)]
    return [*_of_syntax(commands), *_of_context(commands, root), *_of_image(commands)]


def _of_syntax(commands: Sequence[Any]) -> Iterator[str]:
    instructions = {name.upper() for name in dockerfile.all_cmds()}
    if not commands or commands[0].cmd.upper() not in {"FROM", "ARG"}:
        yield "the first instruction must be FROM"
    for command in commands:
        name, line = command.cmd.upper(), command.start_line
        if name not in instructions:
            yield f"line {line}: no instruction {name}"
        for flag in command.flags:
            if flag.partition("=")[0] not in FLAGS.get(name, set()):
                yield f"line {line}: {name} has no flag {flag}"
        if name == "COPY" and len(command.value) < 2:
            yield f"line {line}: COPY needs a source and a destination"
        if name in {"CMD", "ENTRYPOINT"} and not command.json:
            yield f"line {line}: {name} as a list, or a shell stands between it and its signals"
        if name == "ADD":
            yield f"line {line}: ADD fetches and unpacks; COPY copies"


def _of_context(commands: Sequence[Any], root: Path) -> Iterator[str]:
    for command in commands:
        for source in _sources(command):
            if not (root / source).exists():
                yield f"line {command.start_line}: {source} is not in the build's context"
            elif _is_ignored(source, (root / ".dockerignore").read_text("utf-8").splitlines()):
                yield (
                    f"line {command.start_line}: .dockerignore keeps {source} out of the build's "
                    "context"
                )


def _sources(command: Any) -> list[str]:
    """What an instruction takes from the context."""
    if command.cmd.upper() == "COPY" and not any(
        flag.startswith("--from") for flag in command.flags
    ):
        return list(command.value[:-1])
    binds = [flag for flag in command.flags if flag.startswith("--mount=type=bind")]
    return [
        match[1]
        for flag in binds
        if (match := re.search(r"source=([^,]+)", flag)) and "from=" not in flag
    ]


def _is_ignored(source: str, patterns: Sequence[str]) -> bool:
    """Docker's rule: the last pattern that matches a path, or a folder above it, decides."""
    ignored = False
    above = [source, *(str(parent) for parent in Path(source).parents if str(parent) != ".")]
    for pattern in (line.strip() for line in patterns if line.strip() and not line.startswith("#")):
        if any(fnmatch(path, pattern.removeprefix("!").rstrip("/")) for path in above):
            ignored = not pattern.startswith("!")
    return ignored


def _of_image(commands: Sequence[Any]) -> Iterator[str]:
    user, arguments = "root", dict[str, str]()
    for command in commands:
        name, line, words = command.cmd.upper(), command.start_line, command.value
        if name == "ARG":
            arguments |= {word.partition("=")[0]: word.partition("=")[2] for word in words}
        if name == "FROM":
            base = Template(words[0]).safe_substitute(arguments)
            if (":" not in base or base.endswith(":latest")) and "@" not in base:
                yield f"line {line}: {base} may be another image tomorrow; name its tag"
        if name == "USER":
            user = words[0]
        if name in {"ENV", "ARG"}:
            for variable in words[:: 2 if name == "ENV" else 1]:
                if SECRET.search(variable.partition("=")[0]):
                    yield f"line {line}: {variable.partition('=')[0]} would lie open in the image"
        if name == "RUN":
            yield from (f"line {line}: {fault}" for fault in _of_shell(words[0]))
    if user.partition(":")[0] in {"root", "0"}:
        yield "the image runs as root"


def _of_shell(script: str) -> Iterator[str]:
    if "apt-get install" in script and not (
        "--no-install-recommends" in script and "rm -rf /var/lib/apt/lists" in script
    ):
        yield "apt-get install without --no-install-recommends, or its lists left behind"
    if "pip install" in script and not ("--no-cache-dir" in script and "--no-deps" in script):
        yield "pip install without --no-deps (the lock says all) or --no-cache-dir"
    if "pip install" in script and "--requirement" in script and "--require-hashes" not in script:
        yield "a lock without --require-hashes: what is fetched may be something else"
    if "://" in script or "--index" in script:
        yield "an address; where packages come from is the builder's to say"
