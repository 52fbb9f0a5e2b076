"""The address that OpenTelemetry's exporters send to, by its standard environment variables
(opentelemetry.io/docs/specs/otel/protocol/exporter)."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit, urlunsplit

from memray_eval.errors import ConfigError

DEFAULT_ENDPOINT = "http://localhost:4318"
LOGS_PATH = "/v1/logs"
PROTOCOL = "http/protobuf"


@dataclass(frozen=True)
class OtlpAddress:
    """A collector's logs: its `url`, the `headers` that let us in (secrets), whether requests are
    packed, and the certificates for TLS."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_gzipped: bool = False
    certificate: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None

    @property
    def place(self) -> str:
        """The URL without a user, a password, or a query."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    def tls(self) -> ssl.SSLContext | bool:
        """The check of the server's certificate. Raises OSError for a file that is none."""
        if not (self.certificate or self.client_certificate):
            return True
        context = ssl.create_default_context(cafile=self.certificate)
        if self.client_certificate:
            context.load_cert_chain(self.client_certificate, self.client_key)
        return context


def find_address(endpoint: str | None, environ: Mapping[str, str]) -> OtlpAddress:
    """The address of `endpoint`, else of the variables; all but OTEL_EXPORTER_OTLP_LOGS_ENDPOINT
    get /v1/logs. Raises ConfigError for no HTTP address, bad headers, or another protocol."""

    def setting(name: str) -> str | None:
        """OTEL_EXPORTER_OTLP_LOGS_<name>, else OTEL_EXPORTER_OTLP_<name>."""
        for variable in (f"OTEL_EXPORTER_OTLP_LOGS_{name}", f"OTEL_EXPORTER_OTLP_{name}"):
            if value := environ.get(variable, "").strip():
                return value
        return None

    protocol = setting("PROTOCOL")
    if endpoint is None and protocol not in (None, PROTOCOL):
        raise ConfigError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}, and the sink otlp speaks {PROTOCOL}; "
            "give it the collector's HTTP address, as endpoint: http://localhost:4318"
        )
    own = environ.get("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "").strip()
    base = endpoint or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip() or DEFAULT_ENDPOINT
    is_whole = endpoint is None and bool(own)
    try:
        parts = urlsplit(own if is_whole else base)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError
    except ValueError:
        raise ConfigError(
            "the sink otlp needs an HTTP address, such as http://localhost:4318, as its endpoint "
            f"or in OTEL_EXPORTER_OTLP_ENDPOINT; {endpoint or 'the one there'} is none"
        ) from None
    path = (
        parts.path if is_whole else f"{parts.path.rstrip('/').removesuffix(LOGS_PATH)}{LOGS_PATH}"
    )
    return OtlpAddress(
        urlunsplit(parts._replace(path=path)),
        headers=_read_headers(setting("HEADERS") or ""),
        is_gzipped=setting("COMPRESSION") == "gzip",
        certificate=setting("CERTIFICATE"),
        client_certificate=setting("CLIENT_CERTIFICATE"),
        client_key=setting("CLIENT_KEY"),
    )


def _read_headers(text: str) -> dict[str, str]:
    """Headers as key=value pairs with commas between, percent-encoded."""
    headers = {}
    for pair in filter(None, map(str.strip, text.split(","))):
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise ConfigError(
                "OTEL_EXPORTER_OTLP_HEADERS: write key=value pairs with commas between"
            )
        headers[unquote(name).strip().lower()] = unquote(value).strip()
    return headers
