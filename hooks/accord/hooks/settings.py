"""What the agent reads from its environment: one variable a field, every number bounded."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator

from accord.learner.basis import DEFAULT_KNOTS, SplineBasis
from accord.learner.bounds import MAX_TOKEN_BYTES
from accord.learner.errors import InvalidValue
from accord.learner.store import safe_url
from accord.learner.wire import check_engine

from .rounds import DEFAULT_LENGTHS, RoundSchedule

VARIABLES = {
    "redis_url": "ACCORD_REDIS_URL",
    "api_url": "ACCORD_API_URL",
    "api_token": "ACCORD_API_TOKEN",
    "api_token_file": "ACCORD_API_TOKEN_FILE",
    "api_ca_file": "ACCORD_API_CA_FILE",
    "engine": "ACCORD_ENGINE",
    "knots": "ACCORD_KNOTS",
    "round_steps": "ACCORD_ROUND_STEPS",
    "mode": "ACCORD_MODE",
    "bootstrap": "ACCORD_BOOTSTRAP",
    "local_after_s": "ACCORD_LOCAL_AFTER_S",
    "poll_wait_s": "ACCORD_POLL_WAIT_S",
    "queue_rounds": "ACCORD_QUEUE_ROUNDS",
    "sketch_every": "ACCORD_SKETCH_EVERY",
    "heartbeat_s": "ACCORD_HEARTBEAT_S",
}
NO_KNOTS = "none"
"""ACCORD_KNOTS for the published single-slope model, because an empty variable counts as unset."""

TOKEN_PATTERN = rf"[\x21-\x7e]{{1,{MAX_TOKEN_BYTES}}}"


class SettingError(ValueError):
    """A setting that cannot be used; the message names the variable and shows the value, unless it may be secret."""


class Mode(StrEnum):
    """Who owns the coefficients that an engine uses."""

    FLEET = "fleet"
    """The service; own refits while it is out of reach."""
    LOCAL = "local"
    """The engine's own refits; evidence is still sent where a Redis is configured."""
    OBSERVE = "observe"
    """As fleet, without own refits: the engine only measures and does not act on predictions."""
    FROZEN = "frozen"
    """The bootstrap file, for good; evidence is still sent."""


def default_engine() -> str:
    """`<host name>/0`, in the alphabet of engine names."""
    host = re.sub(r"[^A-Za-z0-9._:-]+", "-", socket.gethostname())[:100].lstrip("._:-")
    return f"{host or 'engine'}/0"


Seconds = Annotated[float, Field(allow_inf_nan=False)]


class AgentSettings(BaseModel):
    """Everything that can be set, with its default.

    >>> AgentSettings.from_env({"ACCORD_QUEUE_ROUNDS": "many"})
    Traceback (most recent call last):
    ...
    accord.hooks.settings.SettingError: ACCORD_QUEUE_ROUNDS = 'many': must be a whole number from 2 to 10000
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    redis_url: str | None = Field(None, description="must be redis://, rediss://, unix://, redis+sentinel:// ...")
    api_url: str | None = Field(None, description="must be http://host:port or https://host:port, a path may follow")
    api_token: SecretStr | None = Field(None, description=f"must be 1 to {MAX_TOKEN_BYTES} printable ASCII characters")
    api_token_file: str | None = Field(None, max_length=4096, description="must name a file that holds the token")
    api_ca_file: str | None = Field(None, max_length=4096, description="must name a PEM file of authorities")
    engine: str = Field(default_factory=default_engine, description="must be 1 to 128 of letters, digits and . _ / : -")
    knots: tuple[float, ...] = Field(
        DEFAULT_KNOTS, description=f"must be rising numbers separated by commas, or {NO_KNOTS!r}"
    )
    round_steps: tuple[int, ...] = Field(
        DEFAULT_LENGTHS, description="must be whole numbers from 1 to 100000 separated by commas"
    )
    mode: Mode = Field(Mode.FLEET, description="must be fleet, local, observe or frozen")
    bootstrap: str | None = Field(None, description="must name a file with a coefficient table")
    local_after_s: Seconds = Field(30.0, ge=0.0, le=86400.0, description="must be a number of seconds from 0 to 86400")
    poll_wait_s: Seconds = Field(25.0, ge=0.0, le=50.0, description="must be a number of seconds from 0 to 50")
    queue_rounds: int = Field(64, ge=2, le=10_000, description="must be a whole number from 2 to 10000")
    sketch_every: int = Field(5, ge=1, le=1000, description="must be a whole number from 1 to 1000")
    heartbeat_s: Seconds = Field(2.0, ge=0.05, le=60.0, description="must be a number of seconds from 0.05 to 60")

    @field_validator("knots", "round_steps", mode="before")
    @classmethod
    def _numbers(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        return () if value.strip() == NO_KNOTS else tuple(part.strip() for part in value.split(","))

    @field_validator("knots")
    @classmethod
    def _basis(cls, knots: tuple[float, ...]) -> tuple[float, ...]:
        return SplineBasis(knots).knots

    @field_validator("round_steps")
    @classmethod
    def _schedule(cls, lengths: tuple[int, ...]) -> tuple[int, ...]:
        return RoundSchedule(lengths).lengths

    @field_validator("engine")
    @classmethod
    def _engine(cls, name: str) -> str:
        return check_engine(name)

    @field_validator("api_url")
    @classmethod
    def _http(cls, url: str | None) -> str | None:
        if url is not None and not re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", url):
            raise ValueError("not such a URL")
        return url

    @field_validator("redis_url")
    @classmethod
    def _redis(cls, url: str | None) -> str | None:
        if url is not None and not re.match(r"(rediss?(\+sentinel|\+cluster)?|unix)://", url):
            raise ValueError("unknown scheme")
        return url

    @field_validator("api_token")
    @classmethod
    def _token(cls, token: SecretStr | None) -> SecretStr | None:
        if token is not None and not re.fullmatch(TOKEN_PATTERN, token.get_secret_value()):
            raise ValueError("not such a token")
        return token

    @model_validator(mode="after")
    def _frozen_needs_a_table(self) -> Self:
        if self.mode is Mode.FROZEN and self.bootstrap is None:
            raise ValueError(f"{VARIABLES['mode']} = 'frozen': needs {VARIABLES['bootstrap']}")
        return self

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **overrides: object) -> Self:
        """Settings from the environment; overrides that are not None win (command line options).

        Raises:
            SettingError: naming the variable, its value and what it must be; a token or password is not shown.
        """
        env = os.environ if environ is None else environ
        values: dict[str, object] = {name: env[var] for name, var in VARIABLES.items() if env.get(var, "") != ""}
        values |= {name: value for name, value in overrides.items() if value is not None}
        try:
            return cls.model_validate(values)
        except (ValidationError, InvalidValue) as error:
            raise SettingError(_explain(cls, error, values)) from None


def _explain(cls: type[AgentSettings], error: ValidationError | InvalidValue, values: Mapping[str, object]) -> str:
    if isinstance(error, InvalidValue):
        return str(error)
    first = error.errors()[0]
    if not first["loc"]:
        return first["msg"].removeprefix("Value error, ")
    name = str(first["loc"][0])
    if name not in VARIABLES:
        return f"{name}: no such setting"
    shown = repr(values[name])[:80]
    if name == "api_token":
        shown = "***"
    elif name == "redis_url":
        shown = repr(safe_url(values[name]))[:80]
    return f"{VARIABLES[name]} = {shown}: {cls.model_fields[name].description}"
