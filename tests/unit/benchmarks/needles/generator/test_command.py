"""memray-eval dataset make needles."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from memray_eval.cli import main

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """Calls the command with a tokenizer of bytes; returns its exit code and what it said."""
    own = tokenizers.Tokenizer(tokenizers.models.BPE())
    own.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    own.train_from_iterator(
        ["a"], tokenizers.trainers.BpeTrainer(initial_alphabet=alphabet, show_progress=False)
    )
    transformers.PreTrainedTokenizerFast(tokenizer_object=own).save_pretrained(tmp_path / "bytes")

    def call(*words: str) -> tuple[int, str, str]:
        folder = str(tmp_path / "bytes")
        monkeypatch.setattr(
            sys,
            "argv",
            ["memray-eval", "dataset", "make", "needles", "--tokenizer", folder, *words],
        )
        with pytest.raises(SystemExit) as ended:
            main()
        out = capsys.readouterr()
        return int(ended.value.code or 0), out.out, out.err

    return call


@pytest.mark.heavy
def test_a_sweep_is_written(make, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    out = str(tmp_path / "n.parquet")
    code, said, progress = make(
        "--lengths", "4k,8000", "--depths", "3", "--tasks", "passkey,fwe", "--out", out
    )
    assert (code, progress) == (0, "passkey en 4k\npasskey en 8000\nfwe en 4k\nfwe en 8000\n")
    assert said.startswith(f"{out}: 8 samples, 0.0 MB of context, ")
    table = pq.read_table(out)
    assert table["id"].to_pylist()[:3] == [
        "passkey-en-4k-d0-0",
        "passkey-en-4k-d50-0",
        "passkey-en-4k-d100-0",
    ]
    for row in table.to_pylist():  # a token a byte
        length = 4096 if "-4k-" in row["id"] else 8000
        assert len(f"{row['context']}\n\n{row['query']}".encode()) == length
    assert make("--lengths", "4k", "--out", out)[0] == 2
    assert (
        make(
            "--lengths",
            "4k",
            "--out",
            out,
            "--force",
            "--tasks",
            "vt",
            "--samples",
            "9",
            "--limit",
            "2",
        )[0]
        == 0
    )
    assert pq.read_table(out)["id"].to_pylist() == ["vt-en-4k-0", "vt-en-4k-1"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--tasks", "foo"), "--tasks: no 'foo'; there are: passkey"),
        (("--languages", "de"), "--languages: no 'de'"),
        (("--lengths", "4x"), "--lengths 4x: not a length"),
        (("--lengths", "10"), "--lengths 10: passkey (en) takes at least "),
        (("--depths", "0"), "--depths 0"),
        (("--haystack", "absent.txt"), "cannot read absent.txt"),
        (("--documents", "absent.jsonl"), "cannot read absent.jsonl"),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(
    make, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:  # type: ignore[no-untyped-def]
    code, _, error = make("--out", str(tmp_path / "n.parquet"), *words)
    assert code == 2
    assert said in error
    assert not list(tmp_path.glob("n.parquet*"))
