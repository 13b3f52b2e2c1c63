from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from accord.learner.errors import InvalidValue
from accord.learner.logs import LONGEST_TEXT, JsonFormatter, TextFormatter, configure, event, fields_of


def record(name: str, **fields: object) -> logging.LogRecord:
    """What `event` would log."""
    made = logging.LogRecord("accord.learner", logging.WARNING, "", 0, name, (), None)
    made.fields = fields
    return made


def test_a_line_is_one_json_object_with_the_same_first_fields() -> None:
    """The line names time, level, component, event and pair first, and then what else was given."""
    text = JsonFormatter("learner").format(record("published", version=3, pair="a.b", cause="refit"))
    assert list(json.loads(text)) == ["ts", "level", "component", "event", "pair", "version", "cause", "logger"]
    line = json.loads(text)
    assert line["ts"].endswith("Z")
    assert (line["level"], line["component"], line["event"]) == ("warning", "learner", "published")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("nan")], {"x": float("-inf")}, object(), b"\xff"])
def test_what_json_does_not_know_becomes_text(value: object) -> None:
    """A line is strict JSON whatever a field holds."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    json.loads(JsonFormatter("api").format(record("x", value=value)), parse_constant=refuse)


def test_no_field_can_forge_a_line_or_bloat_one() -> None:
    """Line breaks are escaped in both forms, the first fields cannot be replaced, and long texts are cut."""
    found = record("it\nbroke", pair="a\nb", reason='x" level=info', component="forged", detail="y" * 100_000)
    for formatter in (JsonFormatter("api"), TextFormatter("api")):
        text = formatter.format(found)
        assert len(text.splitlines()) == 1
        assert len(text) < 2 * LONGEST_TEXT
    assert json.loads(JsonFormatter("api").format(found))["component"] == "api"
    assert r'reason="x\" level=info"' in TextFormatter("api").format(found)


def test_text_is_for_people() -> None:
    """The other form has the same content as words, with the traceback on lines of its own."""
    text = TextFormatter("learner").format(record("guard holds", pair="a.b", worse_by=0.5, workload="chat:hot"))
    assert text.split(" ", 1)[1] == (
        "WARNING learner guard holds pair=a.b worse_by=0.5 workload=chat:hot logger=accord.learner"
    )


def test_events_carry_their_fields(caplog: pytest.LogCaptureFixture) -> None:
    """An event is an ordinary record with a fixed message; a library's record has no fields."""
    with caplog.at_level(logging.INFO):
        event(logging.getLogger("accord.test"), "pair taken", pair="a.b", fence=2)
        logging.getLogger("other").warning("%d", 3)
    mine, other = caplog.records
    assert (mine.getMessage(), fields_of(mine)) == ("pair taken", {"pair": "a.b", "fence": 2})
    assert fields_of(other) == {}


def test_an_unknown_format_is_refused() -> None:
    """ACCORD_LOG_FORMAT is json or text; the message names the variable and its value."""
    with pytest.raises(InvalidValue, match="ACCORD_LOG_FORMAT = 'xml': must be one of json, text"):
        configure("learner", {"ACCORD_LOG_FORMAT": "xml"})


@pytest.mark.parametrize(("wanted", "begins"), [("", '{"ts"'), ("json", '{"ts"'), ("text", "2")])
def test_the_process_writes_the_form_that_was_asked_for(wanted: str, begins: str) -> None:
    """Events of accord and warnings of libraries go to stderr in one form, a library's chatter does not."""
    script = (
        "import logging\nfrom accord.learner.logs import configure\nconfigure('learner')\n"
        "logging.getLogger('accord.x').info('mine')\nlogging.getLogger('lib').info('chat')\n"
        "logging.getLogger('lib').warning('theirs')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={"ACCORD_LOG_FORMAT": wanted}
    )
    lines = done.stderr.splitlines()
    assert [line.startswith(begins) for line in lines] == [True, True]
    assert "mine" in lines[0]
    assert "theirs" in lines[1]
