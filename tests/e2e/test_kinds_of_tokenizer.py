"""Exact lengths by tokenizers of every common kind, trained here on a few pages."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from memray_eval.benchmarks.needles.generate import samples
from memray_eval.benchmarks.needles.plan import Plan, plain_prompt
from memray_eval.benchmarks.needles.prose import paragraph
from memray_eval.benchmarks.needles.resources import Resources
from memray_eval.benchmarks.needles.tasks import TASKS

tokenizers = pytest.importorskip("tokenizers")
models, normalizers, trainers = tokenizers.models, tokenizers.normalizers, tokenizers.trainers
splits = tokenizers.pre_tokenizers

LENGTH = 4096
# The patterns of GPT-2, Llama 3 and Qwen 2, as their tokenizer.json has them.
GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| "
    r"?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_2 = LLAMA_3.replace(r"\p{N}{1,3}", r"\p{N}")


class Trained:
    """All that lengths ask of a tokenizer."""

    has_chat = False

    def __init__(self, own: Any) -> None:
        self._own = own

    def count(self, text: str) -> int:
        return len(self._own.encode(text, add_special_tokens=False).ids)


def pages() -> list[str]:
    rng = Random(0)
    lines = [paragraph(rng) for _ in range(150)]
    lines += [
        f"{rng.getrandbits(64):x} {rng.randint(0, 10**7)}, {rng.randint(0, 99)} + "
        f"{rng.randint(0, 99)}\n\n"
        for _ in range(300)
    ]
    return [
        *lines,
        "This is the end of the text.\n\nWhat is the number in the text above? def "
        "func_12(x):\n    return x + 5\n" * 20,
    ]


def byte_level(pattern: str) -> Any:
    own = tokenizers.Tokenizer(models.BPE())
    split = splits.Split(tokenizers.Regex(pattern), "isolated")
    byte = splits.ByteLevel(add_prefix_space=False, use_regex=False)
    own.pre_tokenizer = splits.Sequence([split, byte])
    return trained(own, trainers.BpeTrainer, 1500, initial_alphabet=splits.ByteLevel.alphabet())


def trained(own: Any, trainer: Any, vocab_size: int, **options: Any) -> Any:
    of = trainer(vocab_size=vocab_size, show_progress=False, **options)
    own.train_from_iterator(pages(), of)
    return own


def llama_2() -> Any:
    """No pre-tokenizer but spaces as marks, one put before the text, and bytes for what is unknown,
    newlines included."""
    own = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    own.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    # Only to train
    pattern = tokenizers.Regex(r"▁?\p{L}+|▁?[^\p{L}\p{N}▁]+|\p{N}|▁")
    own.pre_tokenizer = splits.Split(pattern, "isolated")
    bytes_ = ["<unk>", *(f"<0x{n:02X}>" for n in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=1800, special_tokens=bytes_, show_progress=False)
    own.train_from_iterator([page.replace("\n", " ") for page in pages()], trainer)
    own.pre_tokenizer = None
    return own


def word_piece() -> Any:
    own = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    own.normalizer, own.pre_tokenizer = normalizers.BertNormalizer(), splits.BertPreTokenizer()
    return trained(own, trainers.WordPieceTrainer, 1500, special_tokens=["[UNK]"])


def unigram() -> Any:
    own = tokenizers.Tokenizer(models.Unigram())
    own.normalizer = normalizers.Replace(tokenizers.Regex(r"\s+"), " ")
    own.pre_tokenizer = splits.Metaspace()
    unknown = {"unk_token": "<unk>", "special_tokens": ["<unk>"]}
    return trained(own, trainers.UnigramTrainer, 1200, **unknown)


KINDS: dict[str, Callable[[], Any]] = {
    "GPT-2": lambda: byte_level(GPT_2),
    "Llama 3": lambda: byte_level(LLAMA_3),
    "Qwen 2": lambda: byte_level(QWEN_2),
    "Llama 2": llama_2,
    "WordPiece": word_piece,
    "Unigram": unigram,
}


@pytest.mark.parametrize("kind", KINDS)
def test_lengths_are_exact_and_counted_by_parts(kind: str) -> None:
    tokenizer = Trained(KINDS[kind]())
    plan = Plan(tasks=TASKS, lengths=(LENGTH,), depths=(50,), samples=2)
    by_parts: list[bool] = []
    short = []
    resources = Resources(tokenizer, 0)
    for sample in samples(plan, resources, lambda *group: by_parts.append(group[2])):
        tokens = tokenizer.count(plain_prompt(sample.context or "", sample.query))
        assert tokens == sample.metadata["tokens"] <= LENGTH, sample.id
        short += [(sample.id, LENGTH - tokens)] * (tokens < LENGTH)
    print(kind, f"{sum(by_parts)} of {len(by_parts)} groups are counted by parts; short: {short}")
    assert all(by_parts)
    assert not short
