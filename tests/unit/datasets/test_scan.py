"""Ten and more kinds of broken dataset, each with its message; the same samples from every
format."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memray_eval.datasets.reading import SampleReader
from memray_eval.datasets.scan import Scan, read_samples
from memray_eval.datasets.shards import coalesce
from memray_eval.errors import DataError
from tests.build import write_lines
from tests.conftest import SAMPLES
from tests.unit.datasets.builders import (
    MEMORY,
    broken_rows,
    items_of,
    read,
    write_folder,
    write_rows,
)

Raw = dict[str, Any]


LINE = b'{"id": "a", "query": "q"}'


@pytest.mark.parametrize(("changes", "field", "message"), broken_rows("sample"))
def test_a_broken_sample_is_named_with_file_id_and_field(
    tmp_path: Path, raw_sample: Raw, changes: Raw, field: str, message: str
) -> None:
    raw_sample |= changes
    result, _, problems = read(write_folder(tmp_path, raw_sample))
    assert (result.n_samples, result.n_invalid, result.shards) == (0, 1, [])
    (problem,) = problems
    assert (problem.field, problem.sample_id) == (field, raw_sample["id"])
    assert message in problem.message
    assert str(problem).startswith(f"{tmp_path}/s000/sample.json: ")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"id": "x", ', "broken JSON at line 1, column"),
        (b'{"id": "caf\xe9"}', "not UTF-8 (byte 11: 0xe9)"),
        (b'{"id": "a", "id": "b"}', "stands twice"),
        (b'{"id": "a", "query": Infinity}', "Infinity is not a JSON number"),
        (b"[1, 2]", "must be a JSON object, not a list"),
        (b"", "broken JSON"),
        (b"[" * 100_000, "nested more than 64 deep"),
    ],
)
def test_what_is_no_json_object_is_named(tmp_path: Path, data: bytes, message: str) -> None:
    result, _, problems = read(write_folder(tmp_path, LINE, data))
    assert (result.n_samples, result.n_invalid) == (1, 1)
    assert message in problems[0].message
    assert problems[0].path.endswith("s001/sample.json")


def test_every_problem_of_a_sample_is_told_at_once(tmp_path: Path, raw_sample: Raw) -> None:
    raw_sample |= {"query": 1, "traits": {"openness": 2}, "classes": "a"}
    problems = read(write_folder(tmp_path, raw_sample)).problems
    assert {problem.field for problem in problems} == {"query", "traits.openness", "classes"}


def test_a_second_sample_and_a_folder_without_its_file_are_named(tmp_path: Path) -> None:
    path = write_folder(tmp_path, LINE, LINE)
    (path / "t_empty").mkdir()
    result, _, (second, missing) = read(path)
    assert (result.n_samples, result.n_invalid) == (1, 2)
    assert "the first is" in second.message
    assert second.message.endswith("s000/sample.json")
    assert second.path.endswith("s001/sample.json")
    assert "no sample.json" in str(missing)


@pytest.mark.parametrize(
    ("name", "data", "messages"),
    [
        ("d.jsonl", LINE + b'\n\nnot json\n{"id": "b\xff"}\n', ["line 3", "line 4"]),
        ("d.json", b"[" + LINE + b', {"id": ', ["broken JSON after item 1"]),
        ("d.json", b'{"rows": []}', ["holds no samples"]),
        ("d.json", b"[]", ["holds no samples"]),
        ("d.json", b'[{"id": "a", "query": "caf\xe9"}]', ["not UTF-8"]),
        ("d.parquet", b"PAR1 but no", ["not a readable Parquet file"]),
    ],
)
def test_a_broken_combined_file_is_named_with_the_place(
    tmp_path: Path, name: str, data: bytes, messages: list[str]
) -> None:
    (tmp_path / name).write_bytes(data)
    for problem, text in zip(read(tmp_path / name).problems, messages, strict=True):
        assert text in str(problem)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent", "no dataset at"),
        ("notes.md", "cannot tell its format"),
        ("empty", "holds no samples; a dataset is"),
    ],
)
def test_what_is_no_dataset_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "notes.md").write_text("x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=message):
        read(tmp_path / name)


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The shipped dataset in every format."""
    raws = [json.loads(file.read_text("utf-8")) for file in sorted(SAMPLES.glob("*/sample.json"))]
    root = tmp_path_factory.mktemp("formats")
    lines = write_rows(root / "d.jsonl", raws).read_bytes()
    whole = write_rows(root / "list.json", raws).read_bytes()
    (root / "object.json").write_bytes(b'{"samples": ' + whole + b"}")
    (root / "bom.json").write_bytes(b"\xef\xbb\xbf" + whole)
    (root / "d.jsonl.gz").write_bytes(gzip.compress(lines))
    (root / "list.json.zst").write_bytes(pa.Codec("zstd").compress(whole, asbytes=True))
    (root / "many").mkdir()
    for index in (0, 60):
        write_rows(root / "many" / f"{index}.jsonl", raws[index : index + 60])
    texts = ("memory", "emotion")
    as_text = [raw | {name: json.dumps(raw.get(name, {})) for name in texts} for raw in raws]
    # Arrow takes the columns from the first row alone
    names = {name for raw in as_text for name in raw}
    columns = {name: [raw.get(name) for raw in as_text] for name in names}
    pq.write_table(pa.table(columns), root / "d.parquet", row_group_size=30)
    return {"folder": SAMPLES, **{path.name: path for path in root.iterdir()}}


@pytest.mark.parametrize(
    "name", "list.json list.json.zst object.json bom.json d.jsonl d.jsonl.gz d.parquet many".split()
)
@pytest.mark.parametrize("limit", [None, 37])
def test_formats_give_the_same(formats: dict[str, Path], name: str, limit: int | None) -> None:
    reference = read(formats["folder"], rows_per_shard=16, limit=limit)
    result = read(formats[name], rows_per_shard=16, limit=limit)
    assert not result.problems
    assert result.scan.fingerprint == reference.scan.fingerprint
    assert result.ids == reference.ids
    assert len(result.ids) == result.scan.n_samples == (limit or 120)


def test_shards_hold_no_more_rows_than_asked(formats: dict[str, Path]) -> None:
    shards = read(formats["d.jsonl"], rows_per_shard=16).scan.shards
    assert [sum(1 for _ in read_samples(shard, MEMORY)) for shard in shards] == [16] * 7 + [8]


@pytest.mark.parametrize("name", ["folder", "d.jsonl", "d.jsonl.gz", "d.parquet", "many"])
def test_joined_shards_hold_the_same_samples(formats: dict[str, Path], name: str) -> None:
    result = read(formats[name], rows_per_shard=8)
    joined = coalesce(result.scan.shards, 40)
    assert len(joined) < len(result.scan.shards)
    assert all(shard.rows <= 40 for shard in joined)
    assert [item.id for item in items_of(Scan(shards=joined))] == result.ids


def test_keys_that_arrow_filled_with_null_are_not_memories(tmp_path: Path) -> None:
    memories = [{"x": "1"}, {"y": "2"}]
    rows = [{"id": name, "query": "q", "memory": memories[name == "b"]} for name in "ab"]
    result = read(write_rows(tmp_path / "d.parquet", rows))
    assert [sample.memory for sample in result.items] == memories


@pytest.mark.parametrize("name", ["d.jsonl", "d.json", "d.folder"])
def test_invalid_samples_are_left_out(tmp_path: Path, raw_sample: Raw, name: str) -> None:
    raws = [raw_sample | {"id": f"s{index}"} for index in range(40)]
    for index in (0, 7, 8, 39):
        raws[index] = raws[index] | {"query": 5}
    raws[20] = raws[19]
    result, _, problems = read(write_rows(tmp_path / name, raws), rows_per_shard=8)
    result.shards = coalesce(result.shards, 16)
    assert (result.n_samples, result.n_invalid, len(problems)) == (35, 5, 5)
    left_out = {"s0", "s7", "s8", "s39", "s20"}
    kept = {f"s{index}" for index in range(40)} - left_out
    assert sorted(sample.id for sample in items_of(result)) == sorted(kept)


def test_unknown_fields_are_kept_as_metadata(tmp_path: Path, raw_sample: Raw) -> None:
    raw_sample |= {"annotator": "K.", "metadata": {"theme": "sleep"}}
    _, (sample,), problems = read(write_folder(tmp_path, raw_sample))
    assert not problems
    assert sample.metadata == {"annotator": "K.", "theme": "sleep"}


@pytest.mark.parametrize(
    "error", [KeyError("passages"), TypeError("no list"), RecursionError("deep")]
)
def test_an_entry_that_breaks_a_reader_is_a_problem(tmp_path: Path, error: Exception) -> None:
    def adapt(raw: Any, path: str) -> Any:
        if raw["id"] == "b":
            raise error
        return raw

    path = write_lines(tmp_path / "d.jsonl", [{"id": name, "query": "q"} for name in "ab"])
    result, _, problems = read(path, SampleReader(suite="memory", adapt=adapt))
    assert (result.n_samples, result.n_invalid) == (1, 1)
    assert (problems[0].sample_id, problems[0].place) == ("b", "line 2")
    assert f"cannot be read as the suite's: {type(error).__name__}" in problems[0].message


def test_seed_000s_first_sample_is_read_with_a_warning(tmp_path: Path, raw_sample: Raw) -> None:
    """It forbids `age`, which its memory lacks; its personality is its traits."""
    raw_sample |= {"forbidden_keys": ["age"], "personality": {"Openness": 0.7}}
    result, (sample,), problems = read(write_folder(tmp_path, raw_sample))
    assert problems == []
    (warning,) = result.warnings()
    assert warning.startswith("warning: forbidden but absent from memory: 'age'; ")
    assert (sample.traits, sample.forbidden_keys) == ({"openness": 0.7}, ("age",))
