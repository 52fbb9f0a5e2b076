"""memray-eval dataset make needles."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.conftest import REPOSITORY, Call

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")


@pytest.fixture
def make(cli: Call, tmp_path: Path) -> Call:
    """Calls the command with a tokenizer of bytes."""
    own = tokenizers.Tokenizer(tokenizers.models.BPE())
    own.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(initial_alphabet=alphabet, show_progress=False)
    own.train_from_iterator(["a"], trainer)
    folder = tmp_path / "bytes"
    transformers.PreTrainedTokenizerFast(tokenizer_object=own).save_pretrained(folder)
    return lambda *words: cli("dataset", "make", "needles", "--tokenizer", str(folder), *words)


@pytest.mark.heavy
def test_a_sweep_is_written(make: Call, tmp_path: Path) -> None:
    out = str(tmp_path / "n.parquet")
    code, text, progress = make(
        "--lengths", "4k,8000", "--depths", "3", "--tasks", "passkey,fwe", "--out", out
    )
    # One that takes long also says how far it is, by an indented line
    heads = [line for line in progress.splitlines() if not line.startswith(" ")]
    assert (code, heads) == (0, ["passkey 4k", "passkey 8000", "fwe 4k", "fwe 8000"])
    assert text.startswith(f"{out}: 8 samples, 0.0 MB of context, ")
    table = pq.read_table(out)
    first = [f"passkey-en-4k-d{depth}-0" for depth in (0, 50, 100)]
    assert table["id"].to_pylist()[:3] == first
    for row in table.to_pylist():  # a token a byte
        length = 4096 if "-4k-" in row["id"] else 8000
        assert len(f"{row['context']}\n\n{row['query']}".encode()) == length
    assert make("--lengths", "4k", "--out", out)[0] == 2
    again = f"--lengths 4k --out {out} --force --tasks vt --samples 9 --limit 2"
    assert make(*again.split())[0] == 0
    assert pq.read_table(out)["id"].to_pylist() == ["vt-en-4k-0", "vt-en-4k-1"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--tasks", "foo"), "--tasks: no 'foo'; there are: passkey"),
        (("--lengths", "4x"), "--lengths 4x: not a length"),
        (("--lengths", "10"), "--lengths 10: passkey takes at least "),
        (("--depths", "0"), "--depths 0"),
        (("--haystack", "absent.txt"), "cannot read absent.txt"),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(
    make: Call, tmp_path: Path, words: tuple[str, ...], text: str
) -> None:
    code, _, error = make("--out", str(tmp_path / "n.parquet"), *words)
    assert code == 2
    assert text in error
    assert not list(tmp_path.glob("n.parquet*"))


HELD_BACK = REPOSITORY / "tests/data/memory_held_back/cases.yaml"


def test_memory_cases_are_held_back(cli: Call, tmp_path: Path) -> None:
    out, key = tmp_path / "new" / "q.jsonl", tmp_path / "k.jsonl"
    words = ("--out", str(out), "--held-back", str(key), "--cases", str(HELD_BACK))
    code, text, _ = cli("dataset", "make", "memory", *words, "--tasks", "stale", "--limit", "9")
    assert (code, text) == (0, f"{out}: 9 samples\n{key}: 9 samples\n")
    for file in (out, key):
        assert cli("dataset", "validate", str(file), "--suite", "memory")[0] == 0
    questions, keys = (
        [json.loads(row) for row in file.read_text("utf-8").splitlines()] for file in (out, key)
    )
    assert [row["id"] for row in questions] == [row["id"] for row in keys]
    assert all({*row} <= {"id", "query", "memory", "history", "metadata"} for row in questions)
    assert all(row["required_keys"] and row["metadata"]["expects"] for row in keys)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("nedles", "no task set 'nedles'; did you mean 'needles'?"),
        ("mrcr", "no task set 'mrcr'; mrcr was withdrawn: "),
        ("needles --held-back k", "needles has no --held-back; it has"),
        ("memory --held-back out.jsonl", "--held-back out.jsonl: is --out too"),
        ("memory --held-back key.txt", "--held-back key.txt: must end in .jsonl"),
        ("memory --out bad.yaml/out.jsonl", "bad.yaml/out.jsonl: cannot be written: "),
        (f"memory --cases {HELD_BACK} --tasks languages", "--tasks: no task 'languages'"),
        ("memory --cases absent.yaml", "--cases absent.yaml: No such file or directory"),
        ("memory --cases bad.yaml", "--cases bad.yaml: case 1: id: missing"),
        ("memory --tasks stael", "--tasks: no task 'stael'; did you mean 'stale'?"),
        ("memory --entries 0", "--entries 0: whole numbers above 0"),
    ],
)
def test_what_cannot_be_made_is_refused(
    cli: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text("cases: [{theme: sleep}]")
    code, _, problem = cli("dataset", "make", "--out", "out.jsonl", *words.split())
    assert (code, text in problem) == (2, True), problem
    assert not Path("out.jsonl").exists()
