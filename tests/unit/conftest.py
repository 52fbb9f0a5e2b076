"""Unit tests use no network and no Ray: both are made impossible here."""

import socket
from typing import NoReturn

import pytest

from memray_eval.config.environment import API_KEY_VARIABLES, BASE_URL_VARIABLES


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> NoReturn:
        raise AssertionError("a unit test opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*API_KEY_VARIABLES, *BASE_URL_VARIABLES.values()):
        monkeypatch.delenv(name, raising=False)
