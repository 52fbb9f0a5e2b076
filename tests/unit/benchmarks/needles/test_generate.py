"""Samples of a plan: exact length, their own seeds and texts, needles at their depth, what cannot
be made, and the Parquet file that they are written to."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memray_eval.benchmarks.needles.generate import (
    lines_add_up,
    samples,
    typical_order,
    whole_adds_up,
)
from memray_eval.benchmarks.needles.parquet import ROW_GROUP_BYTES, check_writable, write
from memray_eval.benchmarks.needles.plan import Plan, even_depths, length_of, plain_prompt, plan_of
from memray_eval.benchmarks.needles.prose import insert_sentence, length_label
from memray_eval.benchmarks.needles.resources import LONGEST_LINE, Resources, read_haystack
from memray_eval.benchmarks.needles.tasks import TASKS
from memray_eval.datasets.parsing import parse_sample
from memray_eval.datasets.sources import entries, sources_of
from memray_eval.errors import ConfigError, DataError
from memray_eval.ports import Tokenizer
from memray_eval.types import Sample
from tests.unit.benchmarks.conftest import Pieces, Triples

ONE_NEEDLE = tuple(task for task in TASKS if TASKS[task].has_depth)


def plan(tasks: Iterable[str] = TASKS, **changes: Any) -> Plan:
    words = {"lengths": (2048,), "depths": (0, 50, 100)}
    return Plan(tasks={name: TASKS[name] for name in tasks}, **(words | changes))


def tokens_of(tokenizer: Tokenizer, sample: Sample) -> int:
    return tokenizer.count(plain_prompt(sample.context or "", sample.query))


def test_every_sample_has_exactly_its_length(resources: Resources, pieces: Tokenizer) -> None:
    two_lengths = plan(lengths=(2048, 3001), samples=2)
    created = list(samples(two_lengths, resources))
    assert len(created) == two_lengths.n_samples
    for sample in created:
        tokens = sample.metadata["tokens"]
        assert tokens_of(pieces, sample) == tokens == sample.metadata["length"], sample.id
        assert sample.answers
        assert all(sample.answers)


@settings(max_examples=40)
@given(length=st.integers(1200, 6000), task=st.sampled_from(sorted(TASKS)))
def test_any_length_is_met(resources: Resources, pieces: Tokenizer, length: int, task: str) -> None:
    for sample in samples(plan(tasks=(task,), lengths=(length,), depths=(50,)), resources):
        assert tokens_of(pieces, sample) == length


def test_a_tokenizer_whose_counts_do_not_add_up_is_asked_for_every_sample() -> None:
    triples = Triples()
    resources = Resources(triples, seed=0)
    assert not lines_add_up(resources)
    message: list[bool] = []
    created = list(samples(plan(depths=(50,)), resources, lambda *group: message.append(group[2])))
    assert not any(message)
    for sample in created:
        assert 2040 <= tokens_of(triples, sample) == sample.metadata["tokens"] <= 2048


def test_a_group_whose_whole_does_not_add_up_is_found() -> None:
    class Joining(Pieces):
        def count(self, text: str) -> int:
            return super().count(text) - text.count(" + 4 + ")  # joins what only math_calc writes

    resources = Resources(Joining(), seed=0)
    assert lines_add_up(resources)
    for task, length in (("passkey", 2048), ("math_calc", 8192)):
        order = typical_order(plan(), task, length)
        assert whole_adds_up(order, TASKS[task], resources) == (task == "passkey")


@pytest.mark.heavy
def test_a_sample_does_not_depend_on_what_else_is_made(pieces: Tokenizer) -> None:
    both_lengths = samples(plan(lengths=(2048, 9000), samples=2), Resources(pieces, 0))
    among_others = {sample.id: sample for sample in both_lengths}
    for task in TASKS:
        alone = list(samples(plan(tasks=(task,), depths=(50,)), Resources(pieces, 0)))
        assert alone
        assert [among_others[sample.id] for sample in alone] == alone


def test_seeds_and_samples_differ(resources: Resources, pieces: Tokenizer) -> None:
    words = plan(depths=(50,), samples=2)
    first = list(samples(words, resources))
    other = list(samples(replace(words, seed=1), Resources(pieces, 1)))
    assert all(own.context != others.context for own, others in zip(first, other, strict=True))
    assert len({sample.context for sample in first}) == len(first)


@pytest.mark.parametrize("task", ONE_NEEDLE)
def test_the_needle_is_at_its_depth(resources: Resources, pieces: Tokenizer, task: str) -> None:
    depths = plan(tasks=(task,), lengths=(8000,), depths=(0, 25, 50, 75, 100))
    for sample in samples(depths, resources):
        context = sample.context or ""
        position = context.index(sample.answers[0])
        if task == "qa":  # whose answer is in the middle of its document
            position = context.rindex("\n", 0, position)
        share = pieces.count(context[:position]) / pieces.count(context)
        assert abs(100 * share - sample.metadata["depth"]) < 4, sample.id


@pytest.mark.parametrize("task", sorted(TASKS))
def test_too_short_a_length_names_one_that_will_do(resources: Resources, task: str) -> None:
    settings = plan(tasks=(task,), depths=(0, 100), samples=10)
    refusal = rf"--lengths 10: {task} takes at least [0-9]+ tokens"
    with pytest.raises(ConfigError, match=refusal) as refused:
        samples(replace(settings, lengths=(10, 4096)), resources)
    smallest = int(str(refused.value).split("at least ")[1].split()[0])
    created = samples(replace(settings, lengths=(smallest,)), resources)
    assert all(sample.metadata["tokens"] <= smallest for sample in created)
    with pytest.raises(ConfigError, match="takes at least"):
        samples(replace(settings, lengths=(smallest * 2 // 3,)), resources)


def test_the_users_text_is_the_haystack(pieces: Tokenizer) -> None:
    words = "one two three four five six".split()
    lines = [f"Line {word} of the text that was given. It has two sentences.\n" for word in words]
    resources = Resources(pieces, 0, haystack=lines)
    for sample in samples(plan(tasks=("niah_single_2", "niah_multivalue")), resources):
        context = sample.context or ""
        assert tokens_of(pieces, sample) == 2048
        assert context.count("Line four of the text that was given.") > 3
        assert all(answer in context for answer in sample.answers)


def test_lengths() -> None:
    lengths = {"4096": 4096, "4k": 4096, "128K": 131072, "1M": 1048576, "1500": 1500}
    assert {text: length_of(text) for text in lengths} == lengths


@given(st.integers(1, 3 * 2**20))
def test_a_label_is_read_back(length: int) -> None:
    assert length_of(length_label(length)) == length


@pytest.mark.parametrize("text", ["", "0", "k", "4x", "-1", "4.5k", "1kk", "٤"])
def test_what_is_no_length(text: str) -> None:
    with pytest.raises(ConfigError, match="not a length"):
        length_of(text)


@given(st.integers(2, 101))
def test_depths_are_even_and_reach_both_ends(n: int) -> None:
    depths = even_depths(n)
    assert (len(set(depths)), depths[0], depths[-1]) == (n, 0, 100)
    assert even_depths(11) == tuple(range(0, 101, 10))
    assert (even_depths(4), even_depths(1)) == ((0, 33, 67, 100), (50,))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ({"tasks": "passkey,foo"}, "--tasks: no 'foo'; there are: passkey"),
        ({"lengths": " , "}, "--lengths names nothing"),
        ({"depths": 0}, "--depths 0"),
        ({"depths": 102}, "--depths 102"),
        ({"samples": 0}, "--samples 0"),
    ],
)
def test_bad_words_are_named(words: dict[str, object], named: str) -> None:
    good = {"tasks": "all", "lengths": "4k", "depths": 3, "samples": 1, "seed": 0}
    with pytest.raises(ConfigError, match=named):
        plan_of(TASKS, **(good | words))  # type: ignore[arg-type]


def test_every_sample_has_its_own_id_and_their_number_is_known() -> None:
    plan = plan_of(TASKS, "all", "4k,5000", 3, 2, 0)
    orders = [order for group in plan.groups() for order in plan.orders(*group)]
    ids = {order.id for order in orders}
    assert len(ids) == len(orders) == plan.n_samples
    assert {"passkey-en-4k-d50-0", "cwe-en-5000-1"} < ids
    without_depth = {order.task for order in orders if order.depth is None}
    assert without_depth == TASKS.keys() - set(ONE_NEEDLE)


def test_a_text_becomes_lines_that_lose_no_word(tmp_path: Path) -> None:
    long = "A sentence of some length. " * 80 + "\n" + "很长的一句话。" * 200
    text = f"One  two. Three!\n\n\n{long}\r\nEnd"
    (tmp_path / "t.txt").write_text(text, "utf-8")
    lines = read_haystack(str(tmp_path / "t.txt"))
    assert (lines[0], lines[-1]) == ("One two. Three!\n", "End\n")
    assert max(map(len, lines)) <= LONGEST_LINE + 1
    assert "".join("".join(lines).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("data", "text"), [(b"", "has no text"), (b" \n\n", "has no text"), (b"\xff\xfe", "not UTF-8")]
)
def test_what_is_no_text(tmp_path: Path, data: bytes, text: str) -> None:
    (tmp_path / "t.txt").write_bytes(data)
    with pytest.raises(DataError, match=text):
        read_haystack(str(tmp_path / "t.txt"))
    with pytest.raises(DataError, match="cannot read"):
        read_haystack(str(tmp_path / "absent.txt"))


@pytest.mark.parametrize(
    ("paragraph", "expected"),
    [
        ("One is here. Two follows.\n", "One is here. KEY. Two follows.\n"),
        ("一句。两句。\n", "一句。KEY.两句。\n"),
        ("No second sentence.\n", "KEY.\n"),
        ("no end\n", "KEY.\n"),
        ("Pi is 3.14 or so. Two.\n", "Pi is 3.14 or so. KEY. Two.\n"),
    ],
)
def test_a_needle_stands_between_sentences(paragraph: str, expected: str) -> None:
    assert insert_sentence(paragraph, "KEY.") == expected


def test_samples_are_read_back_as_they_were(resources: Resources, tmp_path: Path) -> None:
    created = list(samples(plan(depths=(0, 100)), resources))
    path = str(tmp_path / "new" / "n.parquet")
    written = write(created, path)
    size = sum(len((sample.context or "").encode()) for sample in created)
    assert (written.samples, written.context_bytes) == (len(created), size)
    (shard,) = sources_of(path)
    assert [parse_sample(entry.raw, "needles") for entry in entries(shard)] == created


@pytest.mark.heavy
def test_row_groups_are_bounded(tmp_path: Path) -> None:
    size = ROW_GROUP_BYTES // 3
    rows = (Sample(id=str(n), query="q", context=f"{n}" * size) for n in range(7))
    path = tmp_path / "n.parquet"
    write(rows, str(path))
    with pq.ParquetFile(path) as file:
        groups = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    assert groups == [2, 2, 2, 1]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_file_is_whole_or_not_there(tmp_path: Path, error: type[BaseException]) -> None:
    def broken() -> Iterator[Sample]:
        yield Sample(id="a", query="q", context="c")
        raise error

    with pytest.raises(error):
        write(broken(), str(tmp_path / "n.parquet"))
    assert list(tmp_path.iterdir()) == []


def test_what_may_not_be_written(tmp_path: Path) -> None:
    path = tmp_path / "n.parquet"
    check_writable(str(path), force=False)
    path.write_bytes(b"mine")
    with pytest.raises(ConfigError, match="--force"):
        check_writable(str(path), force=False)
    check_writable(str(path), force=True)
    with pytest.raises(ConfigError, match=r"must end in \.parquet"):
        check_writable(str(tmp_path / "n.jsonl"), force=False)
    (tmp_path / "d.parquet").mkdir()
    with pytest.raises(ConfigError, match="is a folder"):
        check_writable(str(tmp_path / "d.parquet"), force=True)
