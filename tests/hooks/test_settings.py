"""Settings from the environment."""

from __future__ import annotations

import pytest

from accord.hooks.settings import AgentSettings, Mode, SettingError


def test_defaults_need_no_environment() -> None:
    """Without any variable there are usable settings, with an engine name made of the host's."""
    settings = AgentSettings.from_env({})
    assert settings.mode is Mode.FLEET
    assert settings.engine.endswith("/0")
    assert settings.knots == (0.0, 2.0, 4.0)
    assert settings.round_steps == (10, 20, 40, 100)


def test_every_variable_is_read() -> None:
    """Each variable sets its field, and an override wins over it."""
    settings = AgentSettings.from_env(
        {
            "ACCORD_REDIS_URL": "redis://h:1/0",
            "ACCORD_API_URL": "https://h/base",
            "ACCORD_API_TOKEN": "t0ken",
            "ACCORD_ENGINE": "h/1",
            "ACCORD_KNOTS": "-1, 1.5",
            "ACCORD_ROUND_STEPS": "5,50",
            "ACCORD_MODE": "observe",
            "ACCORD_LOCAL_AFTER_S": "2.5",
            "ACCORD_QUEUE_ROUNDS": "9",
            "ACCORD_SKETCH_EVERY": "3",
        },
        engine="h/2",
        mode=None,
    )
    assert settings.redis_url == "redis://h:1/0"
    assert settings.api_token is not None
    assert settings.api_token.get_secret_value() == "t0ken"
    assert (settings.engine, settings.mode) == ("h/2", Mode.OBSERVE)
    assert (settings.knots, settings.round_steps) == ((-1.0, 1.5), (5, 50))
    assert (settings.local_after_s, settings.queue_rounds, settings.sketch_every) == (2.5, 9, 3)


def test_no_knots() -> None:
    """The word none asks for the published single-slope model."""
    assert AgentSettings.from_env({"ACCORD_KNOTS": "none"}).knots == ()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ACCORD_KNOTS", "2,1"),
        ("ACCORD_KNOTS", "a"),
        ("ACCORD_KNOTS", "nan"),
        ("ACCORD_ROUND_STEPS", "0"),
        ("ACCORD_ROUND_STEPS", "1.5"),
        ("ACCORD_MODE", "cloud"),
        ("ACCORD_LOCAL_AFTER_S", "-1"),
        ("ACCORD_LOCAL_AFTER_S", "inf"),
        ("ACCORD_QUEUE_ROUNDS", "1"),
        ("ACCORD_ENGINE", "a b"),
        ("ACCORD_API_URL", "localhost:80"),
        ("ACCORD_API_URL", "ftp://h"),
        ("ACCORD_REDIS_URL", "h:6379"),
    ],
)
def test_errors_name_variable_and_value(variable: str, value: str) -> None:
    """A value that cannot be used is refused with the variable, the value and what it must be."""
    with pytest.raises(SettingError, match=f"^{variable} = '{value}': must"):
        AgentSettings.from_env({variable: value})


def test_frozen_needs_a_table() -> None:
    """Frozen mode without a bootstrap file is refused, because there would be nothing to freeze."""
    with pytest.raises(SettingError, match="ACCORD_MODE = 'frozen': needs ACCORD_BOOTSTRAP"):
        AgentSettings.from_env({"ACCORD_MODE": "frozen"})


def test_secrets_are_not_shown() -> None:
    """Neither a token nor a password appears in an error or in a printed setting."""
    with pytest.raises(SettingError) as caught:
        AgentSettings.from_env({"ACCORD_API_TOKEN": "two words"})
    assert "two words" not in str(caught.value)
    with pytest.raises(SettingError) as caught:
        AgentSettings.from_env({"ACCORD_REDIS_URL": "http://user:hunter2@h"})
    assert "hunter2" not in str(caught.value)
    assert "t0ken" not in repr(AgentSettings.from_env({"ACCORD_API_TOKEN": "t0ken"}))
