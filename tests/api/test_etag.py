"""If-None-Match, apart from HTTP."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from accord.api.etag import IfNoneMatch

TAG_CHARACTERS = st.characters(codec="latin-1", exclude_characters='"\x7f', exclude_categories=("Cc", "Zs"))
TAGS = st.lists(st.text(TAG_CHARACTERS, max_size=8).map(lambda text: f'"{text}"'), max_size=6)
SEPARATORS = st.sampled_from([",", ", ", " ,", "\t,\t", ",,", " , ,"])


@given(TAGS, st.data())
def test_lists(tags: list[str], data: st.DataObject) -> None:
    """Every tag of a well-formed list matches, weak or strong and however it is spaced, and no other does."""
    text = ""
    for tag in tags:
        text += data.draw(st.sampled_from(["", "W/"])) + tag + data.draw(SEPARATORS)
    parsed = IfNoneMatch.parse([text])
    assert parsed.tags == set(tags)
    assert all(parsed.matches(tag) for tag in tags)
    assert not parsed.matches('"of nobody"')


@given(st.lists(TAGS, max_size=4))
def test_lines(lines: list[list[str]]) -> None:
    """Several lines are one list."""
    split = IfNoneMatch.parse([",".join(tags) for tags in lines])
    assert split.tags == {tag for tags in lines for tag in tags}


@given(st.lists(st.text(st.characters(codec="latin-1"), max_size=40), max_size=4))
def test_anything(lines: list[str]) -> None:
    """Whatever a client sends, parsing ends, and `*` alone matches everything."""
    parsed = IfNoneMatch.parse(lines)
    assert parsed.anything == (",".join(lines).strip(" \t") == "*")
    for tag in parsed.tags:
        assert tag in ",".join(lines)


@given(TAGS.filter(bool), st.text(st.sampled_from("ab/W*;="), min_size=1, max_size=5))
def test_malformed(tags: list[str], junk: str) -> None:
    """Junk between the tags makes the whole header match nothing."""
    parsed = IfNoneMatch.parse([f"{tags[0]} {junk}, {', '.join(tags)}"])
    assert not any(parsed.matches(tag) for tag in tags)


def test_long_headers_are_linear() -> None:
    """A header as long as a server takes is parsed in one pass."""
    assert IfNoneMatch.parse([" " * 60_000 + "x"]) == IfNoneMatch()
    assert len(IfNoneMatch.parse([",".join(f'"{i}"' for i in range(8000))]).tags) == 8000
