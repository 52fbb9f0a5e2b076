"""How a sample's memory and history are written as text, for prompts, judges and rules alike."""

from __future__ import annotations

from memray_eval.types import MemoryValue, Sample


def value_text(value: MemoryValue) -> str:
    """A memory value as a reader would write it: a list with commas, a truth value as yes or no."""
    if isinstance(value, tuple):
        return ", ".join(value_text(item) for item in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def memory_lines(sample: Sample) -> str:
    """The user's memory, a line per key."""
    return (
        "\n".join(f"{key}: {value_text(value)}" for key, value in sample.memory.items())
        or "(empty)"
    )


def history_lines(sample: Sample) -> str:
    """The earlier conversation, a line per turn."""
    return "\n".join(f"{turn.role}: {turn.content}" for turn in sample.history) or "(none)"
