"""The table of keys that live for ever."""

from __future__ import annotations

import re

from tests.docs.markdown import ROOT

from accord.learner.store.keys import PERMANENT

_ROW = re.compile(r"^\| `accord:(?:\{PAIR\}:)?(?P<part>[a-z]+)` \| (?P<reason>.+) \|$", re.MULTILINE)


def test_every_key_without_a_ttl_is_told_with_its_reason() -> None:
    """The page lists the keys that the product declares, each with the same reason."""
    page = (ROOT / "docs" / "reliability.md").read_text()
    assert {row["part"]: row["reason"] for row in _ROW.finditer(page)} == PERMANENT
