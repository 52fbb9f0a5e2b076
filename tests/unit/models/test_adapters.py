"""LoRA adapters: what a folder must hold, the engine that candidates share, and the units' ids."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from safetensors.numpy import save_file

from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import EngineConfig
from memray_eval.errors import ConfigError
from memray_eval.execution.prepare.resolve import resolve
from memray_eval.execution.run_manifest import check_measures_the_same, judges_of, rubrics_of
from memray_eval.execution.run_plan import RunPlan, engine_groups
from memray_eval.models.adapters import (
    CONFIG,
    adapters_of,
    check_adapters,
    read_adapter,
    with_adapters,
)
from memray_eval.types import Candidate
from memray_eval.types.scores import unit_id
from tests.conftest import REPOSITORY


@pytest.fixture(autouse=True)
def _read_again() -> None:
    read_adapter.cache_clear()


def adapter(folder: Path, width: int = 8, layer: int = 0, **config: Any) -> str:
    """A folder with an adapter of one matrix."""
    folder.mkdir(exist_ok=True)
    name = f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_A.weight"
    save_file({name: np.zeros((2, width), np.float32)}, folder / "adapter_model.safetensors")
    defaults = {"peft_type": "LORA", "r": 2, "bias": "none", "base_model_name_or_path": "org/base"}
    (folder / CONFIG).write_text(json.dumps(defaults | config))
    return str(folder)


def base(folder: Path) -> str:
    folder.mkdir()
    shapes = {"hidden_size": 8, "num_hidden_layers": 2}
    (folder / "config.json").write_text(json.dumps(shapes))
    return str(folder)


def candidate(model: str, lora: str | None, name: str = "c") -> Candidate:
    return Candidate(name=name, model=model, lora=lora)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"peft_type": "IA3"}, "IA3"),
        ({"r": 0}, "no LoRA"),
        ({"r": 1000}, "no LoRA"),
        ({"rank_pattern": {"q_proj": 600}}, "no LoRA"),
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "bias"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
    ],
)
def test_what_vllm_refuses_is_refused_before_the_run(
    tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read_adapter(adapter(tmp_path / "a", **config))


@pytest.mark.parametrize(
    ("lacking", "message"),
    [(CONFIG, CONFIG), ("adapter_model.safetensors", "adapter_model"), (None, "no such folder")],
)
def test_a_folder_without_an_adapter_says_what_it_lacks(
    tmp_path: Path, lacking: str | None, message: str
) -> None:
    folder = tmp_path / "a"
    if lacking is not None:
        adapter(folder)
        (folder / lacking).unlink()
    with pytest.raises(ConfigError, match=f"candidate 'c': lora: .*{message}"):
        list(check_adapters([candidate("org/base", str(folder))]))


@pytest.mark.parametrize("damage", ["{", '{"r": ', "[]"])
def test_a_damaged_adapter_is_told_and_no_traceback(tmp_path: Path, damage: str) -> None:
    folder = adapter(tmp_path / "a")
    (tmp_path / "a" / CONFIG).write_text(damage)
    with pytest.raises(ConfigError, match="lora: "):
        read_adapter(folder)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / CONFIG).write_text('{"r": 2}')
    (tmp_path / "b" / "adapter_model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0notjson!")
    with pytest.raises(ConfigError, match="cannot read"):
        read_adapter(str(tmp_path / "b"))


@pytest.mark.parametrize(("width", "layer", "fits"), [(8, 1, True), (16, 0, False), (8, 2, False)])
def test_an_adapter_of_another_base_is_refused(
    tmp_path: Path, width: int, layer: int, fits: bool
) -> None:
    tuned = candidate(base(tmp_path / "base"), adapter(tmp_path / "a", width, layer))
    if fits:
        assert list(check_adapters([tuned])) == []
    else:
        with pytest.raises(ConfigError, match="another base"):
            list(check_adapters([tuned]))


@pytest.mark.parametrize(
    ("model", "lines"), [("org/other", 1), ("org/base", 0), ("mirror/Base", 0)]
)
def test_a_base_of_another_name_is_told(tmp_path: Path, model: str, lines: int) -> None:
    assert len(list(check_adapters([candidate(model, adapter(tmp_path / "a"))]))) == lines


@pytest.mark.parametrize(("on_cpu", "at_once", "held"), [(False, 1, 2), (True, 3, 3)])
def test_base_and_adapters_share_one_engine_that_fits_them(
    tmp_path: Path, on_cpu: bool, at_once: int, held: int
) -> None:
    small, large = adapter(tmp_path / "s"), adapter(tmp_path / "l", rank_pattern={"q_proj": 40})
    candidates = [
        candidate("m", None, "base"),
        candidate("m", small, "small"),
        candidate("m", small, "again"),
        candidate("m", large, "large"),
        candidate("other", None, "other"),
    ]
    shared, alone = engine_groups(candidates)
    config = EngineConfig(engine_kwargs={"max_loras": 1})
    assert with_adapters(config, shared, on_cpu).engine_kwargs == {
        "enable_lora": True,
        "max_loras": at_once,
        "max_cpu_loras": held,
        "max_lora_rank": 64,
    }
    assert with_adapters(config, alone, on_cpu) is config
    assert adapters_of(shared).keys() == {"small", "again", "large"}


def test_an_adapter_makes_units_of_its_own_and_its_content_counts(tmp_path: Path) -> None:
    folder = adapter(tmp_path / "a")
    ids = {unit_id("s", candidate("m", lora), "memory") for lora in (None, folder)}
    assert len(ids) == 2
    before = read_adapter(folder).digest
    adapter(tmp_path / "a", lora_alpha=4)
    read_adapter.cache_clear()
    assert read_adapter(folder).digest != before


def test_a_run_is_not_resumed_with_another_adapter(tmp_path: Path) -> None:
    entry = {"name": "c", "model": "org/base", "lora": adapter(tmp_path / "a")}
    dataset = str(REPOSITORY / "dataset/samples")
    spec = resolve(RunConfig.model_validate({"dataset": dataset, "candidates": [entry]}))
    plan = cast(RunPlan, SimpleNamespace(scan=SimpleNamespace(fingerprint="f"), spec=spec))
    before = {
        "dataset": {"fingerprint": "f"},
        "judges": judges_of(spec),
        "rubrics": rubrics_of(spec),
        "adapters": adapters_of(spec.config.candidates),
    }
    check_measures_the_same(plan, before)
    with pytest.raises(ConfigError, match="the adapter of c was other"):
        check_measures_the_same(plan, before | {"adapters": {"c": "other"}})
