"""LoRA adapters: folders of candidates that share the engine of their base model."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from memray_eval.config.sections import EngineConfig
from memray_eval.errors import ConfigError, reason_of
from memray_eval.models.embedded_model import resolve_model
from memray_eval.types import Candidate

CONFIG = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # vLLM's max_lora_rank is one of them
MOST_AT_ONCE = 8  # adapters of one step, each of which takes memory of the device
# What adapters may have that vLLM 0.29 refuses (vllm/lora/peft_helper.py)
_REFUSED = {"use_dora": False, "modules_to_save": None, "bias": "none"}
_READS_HIDDEN = re.compile(r"layers\.(\d+)\..*\b(?:q|k|v|gate|up)_proj\.lora_A(?:\.\w+)?\.weight$")


class Adapter(NamedTuple):
    """An adapter's rank, the base model that it names, and the digest of its files. `shapes` are
    the layer and the input width of its weights, as far as they are told without torch."""

    rank: int
    base: str
    digest: str
    shapes: Sequence[tuple[int, int]]


@cache
def read_adapter(folder: str) -> Adapter:
    """The adapter in a folder, as PEFT saves it. Raises ConfigError: no such folder, no adapter, or
    one that vLLM refuses."""
    path = Path(folder)
    if not path.is_dir():
        raise ConfigError(f"lora: no folder {folder}; name one that holds {CONFIG}")
    weights = next((path / name for name in WEIGHTS if (path / name).is_file()), None)
    if weights is None or not (path / CONFIG).is_file():
        raise ConfigError(
            f"lora: {folder} is no adapter: it lacks {CONFIG if weights else WEIGHTS[0]}; name a "
            "folder as PEFT's save_pretrained writes it"
        )
    try:
        config = json.loads(text := (path / CONFIG).read_text("utf-8"))
        digest = hashlib.blake2b(text.encode(), digest_size=8)
        with weights.open("rb") as file:
            while chunk := file.read(1 << 24):
                digest.update(chunk)
        shapes = _shapes(weights)
    except (OSError, ValueError) as error:
        raise ConfigError(f"lora: cannot read the adapter {folder}: {reason_of(error)}") from None
    config = config if isinstance(config, dict) else {}
    base = str(config.get("base_model_name_or_path") or "")
    return Adapter(_rank_of(f"{folder}/{CONFIG}", config), base, digest.hexdigest(), shapes)


def _rank_of(file: str, config: Mapping[str, Any]) -> int:
    """The largest rank of an adapter's modules. Raises ConfigError for what vLLM refuses."""
    kind, rank = config.get("peft_type", "LORA"), config.get("r")
    ranks = [r for r in (rank, *(config.get("rank_pattern") or {}).values()) if isinstance(r, int)]
    if kind != "LORA" or not isinstance(rank, int) or not 0 < min(ranks) <= max(ranks) <= RANKS[-1]:
        raise ConfigError(
            f"lora: {file} is no LoRA of a rank of 1 to {RANKS[-1]}: peft_type {kind!r}, r {rank!r}"
        )
    for key, plain in _REFUSED.items():
        if config.get(key) and config[key] != plain:
            raise ConfigError(
                f"lora: {file} has {key}: {config[key]!r}, which vLLM does not serve; merge the "
                "adapter into its model and name that"
            )
    return max(ranks)


def _shapes(weights: Path) -> Sequence[tuple[int, int]]:
    """The layers and widths that a safetensors header tells; none of another file."""
    if weights.suffix != ".safetensors":
        return ()
    with weights.open("rb") as file:
        tensors: Mapping[str, Any] = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    found = ((_READS_HIDDEN.search(name), value) for name, value in tensors.items())
    return tuple((int(match[1]), value["shape"][1]) for match, value in found if match)


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
        names = [name.lower().rpartition("/") for name in (adapter.base, candidate.model)]
        is_of_hub = all(owner and not owner.startswith((".", "/")) for owner, _, _ in names)
        if is_of_hub and names[0][2] != names[1][2]:
            yield (
                f"The adapter of {candidate.name} was trained on {adapter.base}, and is asked on "
                f"{candidate.model}."
            )


def _check_fits(adapter: Adapter, model: str) -> None:
    """Raises ConfigError if the base is a folder whose layers have other shapes."""
    try:
        config = json.loads((Path(resolve_model(model)) / "config.json").read_text("utf-8"))
    except (OSError, ValueError):  # of the hub: vLLM says so at its first prompt
        return
    width, layers = config.get("hidden_size"), config.get("num_hidden_layers")
    for layer, taken in adapter.shapes if width and layers else ():
        if taken != width or layer >= layers:
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
