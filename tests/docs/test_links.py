"""Links between pages, and names of variables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.markdown import ROOT, anchors, links, pages, text_of

from accord.learner.service.settings import BOUNDS

_VARIABLE = re.compile(r"\bACCORD_[A-Z0-9_]*[A-Z0-9]\b")
# A prefix in the code, not a name.
_NOT_SET_BY_PEOPLE = {"ACCORD_COMPLETE", "ACCORD_API", "ACCORD_LEARNER", "ACCORD_LOG"}


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(page: str) -> None:
    """Every link to a file or a heading of the project finds it."""
    wrong = []
    for line, target in links(page):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = ((ROOT / page).parent / path).resolve() if path else ROOT / page
        relative = str(found.relative_to(ROOT))
        if not found.exists():
            wrong.append(f"{page}:{line}: {target}: no such file")
        elif anchor and anchor not in anchors(relative):
            wrong.append(f"{page}:{line}: {target}: no such heading")
    assert wrong == []


def test_every_page_is_listed() -> None:
    """The list of pages names each of them."""
    listed = {target.partition("#")[0] for _, target in links("docs/README.md")}
    for page in pages():
        if page.startswith("docs/") and page != "docs/README.md":
            assert Path(page).name in listed, page


def code_variables() -> set[str]:
    """What accord reads from its environment."""
    found = {f"ACCORD_LEARNER_{name.upper()}" for name in (*BOUNDS, "carry", "metrics_host")}
    for folder in ("learner", "hooks", "api"):
        for path in (ROOT / folder).rglob("*.py"):
            found |= set(_VARIABLE.findall(path.read_text(encoding="utf-8")))
    return found - _NOT_SET_BY_PEOPLE


def compose_variables() -> set[str]:
    """What compose.yaml reads from its environment."""
    return set(re.findall(r"\$\{(ACCORD_[A-Z_]+)", (ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8")))


def test_every_variable_is_documented() -> None:
    """What the code reads is in the tables of settings, and what compose reads is in the page on containers."""
    settings = set(_VARIABLE.findall(text_of("docs/operate.md") + text_of("docs/engine.md")))
    assert code_variables() - settings == set()
    assert compose_variables() - set(_VARIABLE.findall(text_of("docs/docker.md"))) - settings == set()


@pytest.mark.parametrize("page", pages())
def test_no_page_invents_a_variable(page: str) -> None:
    """Every variable that a page names is read by something."""
    assert set(_VARIABLE.findall(text_of(page))) - code_variables() - compose_variables() == set()
