"""A base model and two LoRA adapters of it are candidates of one vLLM engine on the CPU."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from memray_eval.config.schema import RunConfig
from memray_eval.models.adapters import CONFIG
from memray_eval.models.embedded_model import resolve_model
from tests.build import finish

pytestmark = pytest.mark.night
QUERIES = ("What is the capital of France?", "Name a colour.", "What do bees make?")


def random_adapter(folder: Path, rank: int) -> str:
    """An adapter of the embedded model that changes each layer's queries and values at random."""
    base = json.loads((Path(resolve_model("embedded")) / "config.json").read_text())
    width, draw = base["hidden_size"], np.random.default_rng(rank)
    values = width // base["num_attention_heads"] * base["num_key_value_heads"]
    weights = {}
    for layer in range(base["num_hidden_layers"]):
        for name, out in (("q_proj", width), ("v_proj", values)):
            of = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            weights[f"{of}.lora_A.weight"] = draw.normal(0, 0.05, (rank, width)).astype("f4")
            weights[f"{of}.lora_B.weight"] = draw.normal(0, 0.2, (out, rank)).astype("f4")
    folder.mkdir()
    save_file(weights, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "bias": "none"}
    (folder / CONFIG).write_text(json.dumps(config | {"target_modules": ["q_proj", "v_proj"]}))
    return str(folder)


def answers(tmp_path: Path, adapters: dict[str, str | None]) -> dict[str, list[str]]:
    """What each candidate says to the queries, in one run of its own."""
    dataset = tmp_path / "queries.jsonl"
    rows = [{"id": str(number), "query": query} for number, query in enumerate(QUERIES)]
    dataset.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    sampling = {"temperature": 0.0, "max_tokens": 8}
    job: dict[str, Any] = {
        "dataset": str(dataset),
        "suite": "chat",
        "candidates": [
            {"name": name, "model": "embedded", "lora": lora, "sampling": sampling}
            for name, lora in adapters.items()
        ],
        "metrics": [],
        "engine": {"device": "cpu", "kv_cache_gib": 1, "max_model_len": 512},
        "out": str(tmp_path / "out"),
    }
    done = finish(RunConfig.model_validate(job))
    texts: dict[str, list[str]] = {name: [] for name in adapters}
    for record in sorted(done.folder.each(), key=lambda record: record.sample.id):
        assert record.response is not None
        assert record.response.error is None
        texts[record.candidate.name].append(record.response.text)
    return texts


def test_base_and_adapters_answer_from_one_engine_each_as_itself(tmp_path: Path) -> None:
    first, second = random_adapter(tmp_path / "one", 4), random_adapter(tmp_path / "two", 16)
    together = answers(tmp_path, {"base": None, "one": first, "two": second})
    print(together)
    assert len({tuple(texts) for texts in together.values()}) == 3
    # In one step with adapters, the base has its own weights
    assert answers(tmp_path, {"base": None})["base"] == together["base"]
