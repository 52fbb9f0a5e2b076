"""A model's own tokenizer and chat template, through transformers' AutoTokenizer."""

import os
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

from memray_eval.errors import ConfigError, GenerationError, cut
from memray_eval.models import importing
from memray_eval.models.embedded_model import resolve_model
from memray_eval.ports import Tokenizer
from memray_eval.types import Message

# transformers' own figure for "no maximum": texts here are meant to be longer than a window.
NO_LIMIT = int(1e30)
LONG = 8192  # characters from which a batch of one, which spares the offsets, is worth its thread


def load_tokenizer(name_or_path: str, trust_remote_code: bool = False) -> Tokenizer:
    """The tokenizer of `embedded`, a folder (needs no network), a bucket's, or a model of the hub;
    loaded once a process. Its own code runs only if it is trusted. Raises ConfigError that says
    what to do: no transformers, no such folder or model, a hub that cannot be reached, a tokenizer
    that needs code of its own."""
    try:
        model = os.path.expanduser(resolve_model(name_or_path))
    except GenerationError as error:
        raise ConfigError(f"tokenizer {name_or_path!r}: {error}") from None
    is_path = not model or model.startswith(("/", ".")) or os.path.exists(model)
    if is_path and not (model and os.path.isdir(model)):
        raise ConfigError(
            f"tokenizer {name_or_path!r}: no such folder; name a folder that holds tokenizer.json, "
            "a model of the hub (such as Qwen/Qwen3-8B), or `embedded`"
        )
    return _load(model, is_path, trust_remote_code)


@cache
def _load(name_or_path: str, is_folder: bool, trust_remote_code: bool) -> Tokenizer:
    try:
        with importing():
            from transformers import AutoTokenizer
    except ImportError as error:
        raise ConfigError(
            f"tokenizer {name_or_path!r}: the package {error.name} is missing; install the extra "
            "`cpu` or `gpu` (make setup)"
        ) from None
    try:
        with warnings.catch_warnings(), importing():  # also of the model's configuration
            warnings.simplefilter("ignore")  # about conversions; a tokenizer that is wrong raises
            own = AutoTokenizer.from_pretrained(
                name_or_path,
                use_fast=True,
                local_files_only=is_folder,
                model_max_length=NO_LIMIT,
                trust_remote_code=trust_remote_code,
            )
    except Exception as error:
        # transformers raises many types: OSError, ValueError, KeyError, tokenizers' bare Exception
        raise ConfigError(_cannot_load(name_or_path, is_folder, error)) from error
    return ModelTokenizer(own)


def _cannot_load(name_or_path: str, is_folder: bool, error: Exception) -> str:
    reason = cut(str(error), 300) or type(error).__name__
    way_out = (
        "the folder must hold tokenizer.json (or tokenizer.model) and tokenizer_config.json, as "
        "save_pretrained writes them"
        if is_folder
        else "check its spelling on huggingface.co, set HF_TOKEN if it is gated, or name a folder "
        "that has its tokenizer"
    )
    if "custom code" in reason:
        way_out = "read it, and let it run by engine.engine_kwargs: {trust_remote_code: true}"
    return f"tokenizer {name_or_path!r} cannot be loaded: {reason}; {way_out}"


class ModelTokenizer:
    """A tokenizer of transformers as the port Tokenizer. Nothing is truncated or padded."""

    def __init__(self, own: Any) -> None:
        self._own = own
        self._fast = getattr(own, "backend_tokenizer", None)
        if self._fast is not None:
            self._fast.no_truncation()
            self._fast.no_padding()

    @property
    def has_chat(self) -> bool:
        return bool(getattr(self._own, "chat_template", None))

    def count(self, text: str) -> int:
        """Tokens of the text alone, no special tokens added."""
        if self._fast is None:
            return len(self._own.encode(text, add_special_tokens=False))
        if len(text) < LONG:
            return len(self._fast.encode(text, add_special_tokens=False).ids)
        return len(self._fast.encode_batch_fast([text], add_special_tokens=False)[0].ids)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids as at a prompt's start, or, without special tokens, of a piece of text."""
        return list(self._own.encode(text, add_special_tokens=add_special_tokens))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens included, spaces as they are."""
        return str(
            self._own.decode(
                list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )

    def chat(self, messages: Sequence[Message], **template: Any) -> list[int]:
        """Token ids of a conversation through the chat template, which gets `template` too, ending
        where the assistant's answer begins.

        Raises ConfigError: no template, or one that refuses these messages (some know no system
        role)."""
        if not self.has_chat:
            raise ConfigError("this model's tokenizer has no chat template; ask it with plain text")
        turns = [message.model_dump() for message in messages]
        try:
            ids = self._own.apply_chat_template(
                turns, **template, tokenize=True, add_generation_prompt=True, return_dict=False
            )
        except Exception as error:  # jinja2's errors, and whatever a template calls
            raise ConfigError(
                f"the model's chat template refuses these messages: {error}"
            ) from error
        return list(ids)
