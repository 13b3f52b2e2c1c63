"""What the api reads from its environment: one variable a field, every number bounded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from accord.learner.errors import AccordError
from accord.learner.store.connect import connect_async, safe_url

MAX_WAIT_S = 60.0
"""The longest that one long-poll may ask for; the contract with engines, so no setting raises it."""

VARIABLES = {
    "redis_url": "ACCORD_REDIS_URL",
    "host": "ACCORD_API_HOST",
    "port": "ACCORD_API_PORT",
    "max_body_bytes": "ACCORD_API_MAX_BODY_BYTES",
    "max_wait_s": "ACCORD_API_MAX_WAIT_S",
    "max_waiters": "ACCORD_API_MAX_WAITERS",
    "max_pairs": "ACCORD_API_MAX_PAIRS",
    "metrics_max_pairs": "ACCORD_API_METRICS_MAX_PAIRS",
    "metrics_max_workloads": "ACCORD_API_METRICS_MAX_WORKLOADS",
    "tokens_file": "ACCORD_API_TOKENS_FILE",
    "insecure": "ACCORD_API_INSECURE",
    "tls_cert": "ACCORD_API_TLS_CERT",
    "tls_key": "ACCORD_API_TLS_KEY",
    "max_streams": "ACCORD_API_MAX_STREAMS",
    "max_stream_s": "ACCORD_API_MAX_STREAM_S",
}


class SettingError(AccordError, ValueError):
    """A setting that cannot be used; the message names the variable and shows the value."""


class Settings(BaseModel):
    """Everything that can be set, with its default.

    >>> Settings.from_env({"ACCORD_API_PORT": "80"}).port
    80
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    redis_url: str = "redis://127.0.0.1:6379/0"
    host: str = Field("127.0.0.1", min_length=1, max_length=255, description="must be a host name or an address")
    port: int = Field(8790, ge=0, le=65535, description="must be a whole number from 0 to 65535")
    max_body_bytes: int = Field(
        1 << 20, ge=1 << 10, le=1 << 26, description="must be a whole number from 1024 to 67108864"
    )
    max_wait_s: Annotated[float, Field(allow_inf_nan=False)] = Field(
        MAX_WAIT_S, ge=0.0, le=MAX_WAIT_S, description=f"must be a number of seconds from 0 to {MAX_WAIT_S:g}"
    )
    max_waiters: int = Field(20_000, ge=0, le=1_000_000, description="must be a whole number from 0 to 1000000")
    max_streams: int = Field(200, ge=0, le=10_000, description="must be a whole number from 0 to 10000")
    max_stream_s: Annotated[float, Field(allow_inf_nan=False)] = Field(
        900.0, ge=0.0, le=86_400.0, description="must be a number of seconds from 0 to 86400"
    )
    max_pairs: int = Field(1_000, ge=1, le=100_000, description="must be a whole number from 1 to 100000")
    metrics_max_pairs: int = Field(200, ge=0, le=100_000, description="must be a whole number from 0 to 100000")
    metrics_max_workloads: int = Field(2_000, ge=0, le=100_000, description="must be a whole number from 0 to 100000")

    tokens_file: str | None = Field(None, min_length=1, max_length=4096, description="must name the file of tokens")
    insecure: bool = Field(False, description="must be 1 or 0")
    tls_cert: str | None = Field(None, min_length=1, max_length=4096, description="must name a PEM file")
    tls_key: str | None = Field(None, min_length=1, max_length=4096, description="must name a PEM file")

    @field_validator("redis_url")
    @classmethod
    def _usable(cls, url: str) -> str:
        connect_async(url)
        return url

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **overrides: object) -> Self:
        """Settings from the environment; overrides that are not None win (command line options).

        Raises:
            SettingError: naming the variable, its value (a URL without its password) and what it must be.
        """
        env = os.environ if environ is None else environ
        values: dict[str, object] = {name: env[var] for name, var in VARIABLES.items() if env.get(var, "") != ""}
        values |= {name: value for name, value in overrides.items() if value is not None}
        if ("tls_cert" in values) != ("tls_key" in values):
            alone, other = ("tls_cert", "tls_key") if "tls_cert" in values else ("tls_key", "tls_cert")
            raise SettingError(f"{VARIABLES[alone]} = {values[alone]!r:.120}: needs {VARIABLES[other]} too")
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
        name = str(first["loc"][0])
        if name not in VARIABLES:
            raise SettingError(f"{name}: no such setting")
        shown, why = repr(values[name]), cls.model_fields[name].description
        if name == "redis_url":
            shown, why = repr(safe_url(values[name])), getattr(first.get("ctx", {}).get("error"), "why", "must be text")
        raise SettingError(f"{VARIABLES[name]} = {shown:.120}: {why}")
