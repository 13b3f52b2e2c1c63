"""What the api reads from its environment."""

from __future__ import annotations

import pytest

from accord.api import Settings
from accord.api.settings import VARIABLES, SettingError


def test_defaults() -> None:
    """An empty environment gives the defaults, and an empty variable counts as unset."""
    assert Settings.from_env({}) == Settings()
    assert Settings.from_env(dict.fromkeys(VARIABLES.values(), "")) == Settings()
    assert (Settings().host, Settings().port) == ("127.0.0.1", 8790)


def test_variables() -> None:
    """Every setting has a variable, and an option wins over it."""
    env = {
        "ACCORD_REDIS_URL": "redis+sentinel://a:1,b:2/main",
        "ACCORD_API_HOST": "::1",
        "ACCORD_API_PORT": "0",
        "ACCORD_API_MAX_BODY_BYTES": "2048",
        "ACCORD_API_MAX_WAIT_S": "1.5",
        "ACCORD_API_MAX_WAITERS": "0",
        "ACCORD_API_MAX_PAIRS": "7",
        "ACCORD_API_MAX_STREAMS": "3",
        "ACCORD_API_MAX_STREAM_S": "0.5",
    }
    found = Settings.from_env(env, port=81, host=None)
    assert found == Settings(
        redis_url=env["ACCORD_REDIS_URL"],
        host="::1",
        port=81,
        max_body_bytes=2048,
        max_wait_s=1.5,
        max_waiters=0,
        max_pairs=7,
        max_streams=3,
        max_stream_s=0.5,
    )
    assert set(VARIABLES) == set(Settings.model_fields)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ACCORD_API_PORT", "80a"),
        ("ACCORD_API_PORT", "65536"),
        ("ACCORD_API_PORT", "-1"),
        ("ACCORD_API_PORT", "9" * 5000),
        ("ACCORD_API_MAX_WAIT_S", "nan"),
        ("ACCORD_API_MAX_WAIT_S", "1e400"),
        ("ACCORD_API_MAX_WAIT_S", "61"),
        ("ACCORD_API_MAX_WAITERS", "1.5"),
        ("ACCORD_API_MAX_PAIRS", "0"),
        ("ACCORD_API_MAX_STREAMS", "-1"),
        ("ACCORD_API_MAX_STREAM_S", "inf"),
        ("ACCORD_API_MAX_BODY_BYTES", "10"),
        ("ACCORD_API_HOST", "h" * 300),
        ("ACCORD_REDIS_URL", "http://host"),
        ("ACCORD_REDIS_URL", "redis://host:99999"),
    ],
)
def test_refused(variable: str, value: str) -> None:
    """A value that cannot be used is refused in one short line that names variable and value."""
    with pytest.raises(SettingError) as caught:
        Settings.from_env({variable: value})
    message = str(caught.value)
    assert message.startswith(f"{variable} = {value!r}"[:100])
    assert ": must be" in message or ": must start" in message or "every node" in message
    assert len(message) < 400


def test_password_is_not_shown() -> None:
    """A refused URL is shown without its password."""
    with pytest.raises(SettingError) as caught:
        Settings.from_env({"ACCORD_REDIS_URL": "redis://me:hush@host:99999"})
    assert "hush" not in str(caught.value)


def test_unknown_override() -> None:
    """An override that is no setting is refused."""
    with pytest.raises(SettingError, match="colour"):
        Settings.from_env({}, colour="red")
