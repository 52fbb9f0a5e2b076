"""Pools of servers: several accounts or regions that serve the same models, asked as one judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memray_eval.config.problems import nearest
from memray_eval.config.sections import NamedServer


def check_pools(servers: Mapping[str, NamedServer]) -> None:
    """Raises ValueError for a pool that is empty, or whose members are not different servers of
    this job that speak one protocol."""
    for name, server in servers.items():
        if server.pool is not None:
            _check_pool(name, server.pool, servers)


def _check_pool(pool: str, members: Sequence[str], servers: Mapping[str, NamedServer]) -> None:
    if not members:
        raise ValueError(f"{pool}: the pool is empty; name the servers that are in it")
    accounts: dict[tuple[str | None, ...], str] = {}
    for name in members:
        if name not in servers:
            single_servers = [other for other in servers if servers[other].pool is None]
            way_out = f"there are: {', '.join(single_servers) or 'none but pools'}"
            if (hint := nearest(name, single_servers)) is not None:
                way_out = f"did you mean {hint!r}?"
            raise ValueError(f"{pool}: no server {name!r}; {way_out}")
        server = servers[name]
        if server.pool is not None:
            raise ValueError(
                f"{pool}: {name} is a pool itself, and a pool holds servers; name those of {name}: "
                f"{', '.join(server.pool)}"
            )
        if server.code is not None:
            raise ValueError(f"{pool}: {name} is code, which has no account to share a pool with")
        first = servers[members[0]]
        if server.provider != first.provider:
            raise ValueError(
                f"{pool}: {members[0]} is {_describe_protocol(first)} and {name} is "
                f"{_describe_protocol(server)}; a pool serves one model by one protocol (for "
                "another model, name a jury or judging.fallbacks)"
            )
        if members.count(name) > 1:
            raise ValueError(f"{pool}: {name} is named twice; leave it out once")
        account = (server.url and server.url.rstrip("/"), server.api_key_env)
        if (other := accounts.setdefault(account, name)) != name:
            raise ValueError(
                f"{pool}: {other} and {name} are one account, by url and api_key_env, and have one "
                "limit; leave one of them out"
            )


def _describe_protocol(server: NamedServer) -> str:
    return "an OpenAI-compatible server" if server.provider is None else f"of {server.provider}"
