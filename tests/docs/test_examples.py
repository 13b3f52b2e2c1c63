"""The examples in docstrings."""

from __future__ import annotations

import doctest
import importlib

import pytest
from tests.docs.markdown import ROOT

PACKAGES = ("learner", "hooks", "api")


def modules() -> list[str]:
    """Those with an example."""
    paths = [path for package in PACKAGES for path in (ROOT / package / "accord").rglob("*.py")]
    found = [path for path in paths if ">>>" in path.read_text()]
    return sorted(".".join(path.relative_to(ROOT).with_suffix("").parts[1:]) for path in found)


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings_are_true(name: str) -> None:
    """Each gives what stands below it."""
    found = doctest.testmod(importlib.import_module(name))
    assert (found.attempted > 0, found.failed) == (True, 0)
