"""Files that are damaged, endless or hostile: a problem line each, and never an exception that is
not ours."""

import gzip
import io
import json
import math
import os
import random
from pathlib import Path

import ijson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memray_eval.datasets import json_files
from memray_eval.datasets.parsing import MAX_NESTING, InvalidSample, parse_json
from memray_eval.datasets.scan import Scan
from memray_eval.errors import DataError
from memray_eval.storage import paths as storage
from tests.unit.datasets.builders import read, write_folder, write_rows

DIGITS = b"9" * 5000
DEEP = b"[" * 100_000 + b"]" * 100_000


def row(number: int, query: str = "hello?") -> bytes:
    return json.dumps({"id": f"s{number}", "query": query}).encode() + b"\n"


def scanned(path: Path) -> tuple[Scan, list[str]]:
    """The scan, whose samples can be read, and its problems, which can be written."""
    result = read(path)
    assert len(result.items) == result.scan.n_samples
    for problem in result.problems:
        problem.model_dump_json()
        str(problem).encode("utf-8")
    return result.scan, [str(problem) for problem in result.problems]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"id":"a","query":"q","metadata":{"x":' + DEEP + b"}}\n", "nested more than 64 deep"),
        (b'{"id":"a","query":"q","memory":{"n":' + DIGITS + b"}}\n", "a number has more digits"),
        (b'{"id":"a","query":"q","memory":{"n":1e' + DIGITS + b"}}\n", "is too large"),
        (b'{"id":"a\\ud800","query":"q"}\n', "sample a\\ud800: id"),
        (b'{"id":"a","query":"q","memory":{"k\\udfff":"v"}}\n', "sample a: memory"),
        (b"\x1b]0;title\x07\n", "broken JSON"),
        (b"\0" * 100 + b"\n", "broken JSON"),
    ],
)
@pytest.mark.parametrize("form", ["jsonl", "folder", "json"])
def test_an_odd_entry_is_a_problem(content: bytes, message: str, form: str, tmp_path: Path) -> None:
    path = tmp_path / f"data.{form}"
    if form == "folder":
        write_folder(path, row(1), content, row(2))
    elif form == "jsonl":
        path.write_bytes(row(1) + content + row(2))
    else:
        path.write_bytes(b"[" + row(1) + b"," + content + b"]")
    result, problems = scanned(path)
    if form != "json":
        assert (result.n_samples, result.n_invalid) == (2, 1)
        assert message in problems[0]
    elif b"\\ud" not in content:  # a stream ends where it breaks; yajl replaces lone surrogates
        assert result.n_invalid == 1
        assert "broken JSON after item" in problems[0]


def test_numbers_and_brackets_in_a_text_are_text(tmp_path: Path) -> None:
    rows = [{"id": "a", "query": DIGITS.decode() + "[" * 1000 + '\\"' * 3}]
    for kind in ("json", "jsonl"):
        assert scanned(write_rows(tmp_path / f"data.{kind}", rows))[0].n_samples == 1


@pytest.mark.heavy
def test_nesting_is_followed_through_pieces_of_any_size() -> None:
    draw = random.Random(1)
    numbers = (1, 2.5, None, math.nan, "9" * 1500)
    leaves = ['x"y', "\\", "[[[", "}}", "é", "NaN", '\\"NaN', *numbers]

    def value(depth: int) -> object:
        kind = draw.random()
        inner = [value(depth - 1) for _ in range(draw.randint(0, 3))] if depth else []
        if depth and kind < 0.4:
            return inner
        if depth and kind < 0.8:
            return {draw.choice(['a"', "b\\", "{[", "k"]): item for item in inner}
        return draw.choice(leaves)

    for turn in range(200):
        text = json.dumps([value(5) for _ in range(3)], ensure_ascii=bool(turn % 2))
        guarded = json_files.GuardedJson(io.BytesIO(text.encode()))
        read = b""
        while piece := guarded.read(draw.randint(1, 7)):
            read += piece
        assert guarded._nesting.depth == 0
        assert json.loads(read) == json.loads(text, parse_constant=lambda name: None)
    most, more = ("[" * n + "]" * n for n in (MAX_NESTING, MAX_NESTING + 1))
    deep = json_files.GuardedJson(io.BytesIO(more.encode()))
    with pytest.raises(ijson.JSONError, match="nested more than"):
        list(iter(lambda: deep.read(5), b""))
    assert parse_json(most.encode())
    with pytest.raises(InvalidSample, match="nested more than"):
        parse_json(more.encode())


@pytest.mark.heavy
@pytest.mark.parametrize("damage", ["cut", "flipped", "checksum", "not packed", "zst", "json"])
def test_a_damaged_packed_file_keeps_what_stands_before(damage: str, tmp_path: Path) -> None:
    draw = random.Random(3)
    rows = b"".join(row(n, "".join(draw.choices("abcdefgh", k=200))) for n in range(8000))
    packed = gzip.compress(rows)
    half = len(packed) // 2
    content = {
        "cut": packed[:half],
        "flipped": packed[:half] + b"\xff" * 50 + packed[half + 50 :],
        "checksum": packed[:-8] + b"\0" * 8,
        "not packed": rows[:1000],
    }
    names = {"zst": "data.jsonl.zst", "json": "data.json.gz"}
    path = tmp_path / names.get(damage, "data.jsonl.gz")
    path.write_bytes(content.get(damage, b"no gzip"))
    result, problems = scanned(path)
    assert result.n_invalid == 1 or damage == "flipped"  # whose rubbish may hold ends of lines
    assert "the packed file is damaged or cut off" in problems[-1]
    assert damage == "json" or "can be read: " in problems[-1]
    if damage in ("cut", "checksum"):
        assert result.n_samples > 1000
    elif damage != "flipped":
        assert result.n_samples == 0


def test_a_decompression_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "BOMB_BYTES", 1 << 20)
    path = tmp_path / "data.jsonl.gz"
    path.write_bytes(gzip.compress(row(1) + b'{"id":"x","query":"' + b"a" * (8 << 20) + b'"}\n', 9))
    result, problems = scanned(path)
    assert result.n_invalid == 1
    assert "decompression bomb" in problems[0]
    with storage.open_reader(*storage.locate(str(path))) as reader:
        for _ in range(2):  # who reads on gets no end of the file
            with pytest.raises(storage.DamagedFile, match="bomb"):
                reader.read()


def test_a_line_without_end_is_one_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_files, "MAX_LINE_BYTES", 1000)
    path = tmp_path / "data.jsonl"
    path.write_bytes(row(1) + b"x" * 5000 + b"\n" + row(2) + b"y" * 2000)
    result, problems = scanned(path)
    assert (result.n_samples, result.n_invalid) == (2, 2)
    assert all("the line is longer than" in problem for problem in problems)


def test_fifos_and_devices_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    for name in ("pipe.jsonl", "zero.json"):
        with pytest.raises(DataError, match="neither a file nor a folder"):
            scanned(tmp_path / name)
    samples = write_folder(tmp_path / "samples", row(1))
    (samples / "a").mkdir()
    os.mkfifo(samples / "a" / "sample.json")
    result, problems = scanned(samples)
    assert (result.n_samples, result.n_invalid) == (1, 1)
    assert "not a regular file" in problems[0]


def test_half_a_character_in_a_note_is_kept(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_bytes(b'{"id":"a","query":"q","note":"x\\ud800y"}\n' + row(1))
    assert scanned(tmp_path / "data.jsonl")[0].n_samples == 2


def test_recordings_of_a_parquet_are_left_out_and_broken_text_is_told(tmp_path: Path) -> None:
    sound = {"bytes": b"\xff\xfe", "path": "a.wav"}
    row = {"id": "a", "query": "q", "picture": b"\xff", "audio": sound, "all": [sound]}
    result = read(write_rows(tmp_path / "data.parquet", [row]))
    (sample,) = result.items
    assert result.problems == []
    assert sample.metadata == {"audio": {"path": "a.wav"}, "all": [{"path": "a.wav"}]}
    ends, text = pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")
    broken = pa.StringArray.from_buffers(1, ends, text)
    pq.write_table(pa.table({"id": ["a"], "query": broken}), tmp_path / "broken.parquet")
    scan, problems = scanned(tmp_path / "broken.parquet")
    assert (scan.n_samples, scan.n_invalid) == (0, 1)
    assert "not a readable Parquet file" in problems[0]
