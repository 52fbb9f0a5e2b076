"""What each worker process imports before its first block, and a run in this process."""

import subprocess
import sys

import pytest


@pytest.mark.heavy
def test_clients_of_servers_are_imported_where_they_are_used() -> None:
    heavy = ("ray", "openai", "anthropic", "google.genai", "sentence_transformers", "torch", "vllm")
    code = (
        "import sys, memray_eval.execution.stages.blocks, memray_eval.execution.stages.prompt\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
