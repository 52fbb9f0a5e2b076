"""The providers of judges, a file each. Here is the one place that uses instructor's own registry,
which is no public API of it."""

from typing import Any

from instructor import Mode
from instructor.utils.providers import Provider
from instructor.v2.core.registry import mode_registry
from pydantic import BaseModel

__all__ = ["Mode", "Provider", "build_request"]


def build_request(
    provider: Provider, mode: Mode, judgment: type[BaseModel], request: dict[str, Any]
) -> dict[str, Any]:
    """A request with the judgment's schema put in, by instructor's handler of a provider's mode."""
    _, arguments = mode_registry.get_handlers(provider, mode).request_handler(
        response_model=judgment, kwargs=request
    )
    return dict(arguments)
