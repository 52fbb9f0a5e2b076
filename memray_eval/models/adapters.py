"""LoRA adapters: folders of candidates that share the engine of their base model."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from memray_eval.config.sections import EngineConfig
from memray_eval.errors import ConfigError, reason_of
from memray_eval.models.embedded_model import config_of
from memray_eval.types import Candidate

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # vLLM's max_lora_rank is one of them
MOST_AT_ONCE = 8  # adapters of one step; each takes memory of the device
# The adapters that vLLM 0.29 serves (vllm/lora/peft_helper.py)
_PLAIN: Mapping[str, list[Any]] = {
    "peft_type": ["LORA"],
    "use_dora": [False, None],
    "modules_to_save": [None, []],
    "bias": ["none", None],
}
_READS_HIDDEN = re.compile(r"layers\.(\d+)\..*\b(?:q|k|v|gate|up)_proj\.lora_A(?:\.\w+)?\.weight$")
_OF_HUB = re.compile(r"[^/.][^/]*/([^/]+)")


class Adapter(NamedTuple):
    """An adapter's rank, the base model that it names, the digest of its files, and the layer and
    input width of each of its weights."""

    rank: int
    base: str
    digest: str
    shapes: Sequence[tuple[int, int]]


@cache
def read_adapter(folder: str) -> Adapter:
    """The adapter in a folder, as PEFT saves it. Raises ConfigError: no such folder, no adapter, or
    one that vLLM refuses."""
    path, weights = Path(folder, CONFIG), Path(folder, WEIGHTS)
    if lacking := [file.name for file in (path, weights) if not file.is_file()]:
        what = lacking[0] if path.parent.is_dir() else "such folder"
        raise ConfigError(f"lora: {folder}: no {what}; name one that PEFT's save_pretrained wrote")
    try:
        digest = hashlib.blake2b(path.read_bytes(), digest_size=8)
        with weights.open("rb") as file:
            while chunk := file.read(1 << 24):
                digest.update(chunk)
        config = json.loads(path.read_text("utf-8"))
        base, rank = str(config.get("base_model_name_or_path") or ""), _rank_of(config)
        return Adapter(rank, base, digest.hexdigest(), _shapes(weights))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigError(f"lora: cannot read the adapter {folder}: {reason_of(error)}") from None
    except ConfigError as error:
        raise ConfigError(f"lora: {path} {error}") from None


def _rank_of(config: Mapping[str, Any]) -> int:
    """The largest rank of an adapter's modules. Raises ConfigError for what vLLM refuses."""
    odd = {key: value for key, value in config.items() if value not in _PLAIN.get(key, [value])}
    ranks: list[Any] = [config.get("r"), *(config.get("rank_pattern") or {}).values()]
    if odd or not all(isinstance(rank, int) and 0 < rank <= RANKS[-1] for rank in ranks):
        raise ConfigError(
            f"is no LoRA that vLLM serves, with ranks of 1 to {RANKS[-1]}: it has "
            f"{odd or ranks}; merge it into its model, and name that"
        )
    return int(max(ranks))


def _shapes(weights: Path) -> Sequence[tuple[int, int]]:
    """The layers and widths that a safetensors header tells."""
    with weights.open("rb") as file:
        length = min(int.from_bytes(file.read(8), "little"), 1 << 27)
        tensors: Mapping[str, Any] = json.loads(file.read(length))
    return [
        (int(match[1]), value["shape"][1])
        for name, value in tensors.items()
        if (match := _READS_HIDDEN.search(name))
    ]


def check_adapters(candidates: Sequence[Candidate]) -> Iterator[str]:
    """Yields a line for each candidate whose adapter names another base model of the hub. Raises
    ConfigError for one that cannot be read, or whose weights do not fit its base."""
    for candidate in candidates:
        if candidate.lora is None:
            continue
        try:
            adapter = read_adapter(candidate.lora)
            _check_fits(adapter, candidate.model)
        except ConfigError as error:
            raise ConfigError(f"candidate {candidate.name!r}: {error}") from None
        base, model = (_OF_HUB.fullmatch(name.lower()) for name in (adapter.base, candidate.model))
        if base and model and base[1] != model[1]:
            yield (
                f"The adapter of {candidate.name} was trained on {adapter.base}, and is asked on "
                f"{candidate.model}."
            )


def _check_fits(adapter: Adapter, model: str) -> None:
    """Raises ConfigError if the base is a folder whose layers have other shapes. Of a model of the
    hub the first prompt says so."""
    config = config_of(model)
    width, layers = config.get("hidden_size"), config.get("num_hidden_layers")
    for layer, taken in adapter.shapes:
        if width and layers and (taken != width or layer >= layers):
            raise ConfigError(
                f"lora: it was trained on another base ({adapter.base or 'unnamed'}): its layer "
                f"{layer} takes {taken} values, and {model} has {layers} layers of {width}"
            )


def with_adapters(
    engine: EngineConfig, candidates: Sequence[Candidate], on_cpu: bool
) -> EngineConfig:
    """The engine that the candidates share, with room for their adapters.

    vLLM 0.29 on a CPU gives prompts without an adapter the last slot's, if others of the step have
    one (lora/ops/torch_ops: index -1): one slot more stays empty there."""
    named = {candidate.lora for candidate in candidates if candidate.lora is not None}
    if not named:
        return engine
    rank = max(read_adapter(folder).rank for folder in named)
    kwargs: dict[str, Any] = {
        "enable_lora": True,
        "max_loras": min(len(named), MOST_AT_ONCE),
        "max_cpu_loras": len(named),
        "max_lora_rank": next(size for size in RANKS if size >= rank),
        **engine.engine_kwargs,
    }
    if on_cpu:
        kwargs |= dict.fromkeys(("max_loras", "max_cpu_loras"), len(named) + 1)
    return engine.model_copy(update={"engine_kwargs": kwargs})


def adapters_of(candidates: Sequence[Candidate]) -> dict[str, str]:
    """The digest of each candidate's adapter, by candidate."""
    return {
        candidate.name: read_adapter(candidate.lora).digest
        for candidate in candidates
        if candidate.lora is not None
    }
