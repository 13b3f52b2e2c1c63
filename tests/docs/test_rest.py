"""docs/rest.md against the api's own description."""

from __future__ import annotations

from tests.docs.rest import PAGE, document, page


def test_the_reference_is_up_to_date() -> None:
    """The page is what the description gives; `python -m tests.docs.rest` writes it again."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_the_reference_has_every_route_and_model() -> None:
    """No operation and no model of the description is missing."""
    text, described = page(), document()
    for path, operations in described["paths"].items():
        for method in operations:
            assert f"### {method.upper()} {path}\n" in text
    for name in described["components"]["schemas"]:
        assert f"### {name}\n" in text
