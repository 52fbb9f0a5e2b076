"""What each worker process imports before its first block."""

from __future__ import annotations

import subprocess
import sys


def test_clients_of_servers_are_imported_where_they_are_used() -> None:
    heavy = ("openai", "anthropic", "google.genai", "sentence_transformers", "torch", "vllm")
    code = (
        "import sys, memray_eval.execution.ray.workers, memray_eval.execution.ray.prompt_stage\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
