"""A tokenizer of a folder, as transformers saves it."""

import json
from pathlib import Path

import pytest

from memray_eval.errors import ConfigError
from memray_eval.execution.stages.prompt import window_of
from memray_eval.models.embedded_model import fetch_model, resolve_model
from memray_eval.models.tokenizers import load_tokenizer
from memray_eval.types import Message

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% "
    "endif %}<u> {{ m.content }} {% endfor %}{% if add_generation_prompt %}<a>{% endif %}"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Words by number: <s> 0, <u> 1, <a> 2, ? 3, hello 4, world 5. Texts start with <s>, and are
    cut after three tokens."""
    words = {"<s>": 0, "<u>": 1, "<a>": 2, "?": 3, "hello": 4, "world": 5}
    own = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="?"))
    own.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    own.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    own.enable_truncation(3)
    saved = transformers.PreTrainedTokenizerFast(
        tokenizer_object=own,
        bos_token="<s>",
        unk_token="?",
        extra_special_tokens=["<u>", "<a>"],
        model_max_length=3,
    )
    saved.chat_template = TEMPLATE
    saved.save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.heavy
def test_texts_are_counted_whole_and_only_prompts_start_with_special_tokens(folder: Path) -> None:
    tokenizer = load_tokenizer(str(folder))
    assert tokenizer.count("hello world hello world hello") == 5
    assert tokenizer.count("hello " * 5000) == 5000
    assert tokenizer.encode("hello world hello world") == [0, 4, 5, 4, 5]
    assert tokenizer.encode("hello", add_special_tokens=False) == [4]
    assert tokenizer.decode([0, 4, 5]) == "<s> hello world"
    assert load_tokenizer(str(folder)) is tokenizer


def test_a_conversation_ends_where_the_answer_begins(folder: Path) -> None:
    tokenizer = load_tokenizer(str(folder))
    assert tokenizer.has_chat
    assert tokenizer.chat(
        [Message(role="user", content="hello"), Message(role="user", content="you")]
    ) == [1, 4, 1, 3, 2]
    with pytest.raises(ConfigError, match="no system role"):
        tokenizer.chat([Message(role="system", content="hello")])


def test_without_a_template_there_is_no_chat(folder: Path) -> None:
    for path in folder.glob("*template*"):
        path.unlink()
    tokenizer = load_tokenizer(str(folder))
    assert not tokenizer.has_chat
    with pytest.raises(ConfigError, match="no chat template"):
        tokenizer.chat([Message(role="user", content="hello")])


@pytest.mark.parametrize("name", ["", "/no/such/folder", "./nor-this", "~/no/such/folder"])
def test_what_is_no_folder(name: str) -> None:
    with pytest.raises(ConfigError, match="no such folder; name a folder"):
        load_tokenizer(name)


def test_a_folder_without_a_tokenizer_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"must hold tokenizer\.json"):
        load_tokenizer(str(tmp_path))


def test_a_tokenizers_own_code_runs_only_if_it_is_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(
        "transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path_factory.mktemp("code"))
    )
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config |= {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": [None, "own.Own"]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(
        "from transformers import PreTrainedTokenizerFast\n"
        "class Own(PreTrainedTokenizerFast):\n    def chat_is_own(self): return True\n"
    )
    with pytest.raises(ConfigError, match="trust_remote_code: true"):
        load_tokenizer(str(folder))
    trusted = load_tokenizer(str(folder), trust_remote_code=True)
    assert trusted._own.chat_is_own()  # type: ignore[attr-defined]
    assert trusted.encode("hello") == [0, 4]


def test_a_buckets_tokenizer_is_copied_once_and_again_if_it_changes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("MEMRAY_EVAL_CACHE", str(tmp_path_factory.mktemp("cache")))
    url = f"file://{folder}"
    with pytest.raises(ConfigError, match="no model"):
        load_tokenizer(url)
    (folder / "config.json").write_text('{"max_position_embeddings": 77}')
    (folder / "model.safetensors").write_bytes(b"weights")
    assert load_tokenizer(url).encode("hello") == [0, 4]
    assert window_of(url) == 77
    copied, whole = Path(resolve_model(url)), Path(resolve_model(url, weights=True))
    assert not (copied / "model.safetensors").exists()
    assert (whole / "model.safetensors").read_bytes() == b"weights"
    fetch_model.cache_clear()
    assert resolve_model(url) == str(copied)
    (folder / "config.json").write_text('{"max_position_embeddings": 177}')
    fetch_model.cache_clear()
    assert window_of(url) == 177
