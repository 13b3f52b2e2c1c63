"""If-None-Match and If-Match, apart from HTTP."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.api.etag import IfMatch, IfNoneMatch

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


@pytest.mark.parametrize(
    "lines", [[""], ["7"], ['"7'], ['"7" "8"'], ['"7",'], [',"7"'], ["**"], ['"7";x'], ['"7"', "*"]]
)
def test_if_match_that_is_none(lines: list[str]) -> None:
    """What does not follow the grammar is refused: a guess could overwrite what nobody has seen."""
    with pytest.raises(ValueError, match="quoted"):
        IfMatch.parse(lines)


def test_if_match_compares_strongly() -> None:
    """Any of several tags will do, a weak one never, and the star always."""
    assert IfMatch.parse(['"1" , W/"2"', '"a,b"']).tags == {'"1"', '"a,b"'}
    assert not IfMatch.parse(['W/"2"']).matches('"2"')
    assert IfMatch.parse([" * "]).matches('"2"')
