"""What the pages say: blocks of commands, links, anchors, code in a line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHELLS = ("sh", "console")

UNTIL_STOPPED = "runs until stopped"
REASONS = frozenset(
    {
        "needs containers",
        "needs vLLM",
        "needs a secret of yours",
        "installs something",
        "takes minutes",
        "the tests run inside of it",
        "the tests start it themselves",
    }
)
"""Why a block may be left out: `<!-- not run: REASON -->` stands directly above it."""

_FENCE = re.compile(r"^```(\w*)\s*$")
_HEADING = re.compile(r"^(#{1,6})\s+(.+?)\s*#*$")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_IMAGE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        page: path from the root.
        line: of the opening fence, from 1.
        language: as written after the fence.
        note: the comment directly above, without its marks; empty without one.
        text: what is in it.
    """

    page: str
    line: int
    language: str
    note: str
    text: str

    @property
    def where(self) -> str:
        """Page and line."""
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> str:
        """The block as a script: of a `console` block what follows a prompt."""
        if self.language != "console":
            return self.text
        lines, going_on = [], False
        for line in self.text.splitlines():
            if going_on or line.startswith("$ "):
                lines.append(line.removeprefix("$ "))
                going_on = line.endswith("\\")
        return "\n".join(lines) + "\n"

    @property
    def left_out(self) -> str | None:
        """Why it is not run, or None."""
        return self.note.removeprefix("not run: ") if self.note.startswith("not run:") else None

    @property
    def endless(self) -> bool:
        """Whether it goes on until somebody stops it."""
        return self.note == UNTIL_STOPPED


def pages() -> list[str]:
    """Every page for readers, by its path from the root."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "docker" / "README.md"]
    return [str(path.relative_to(ROOT)) for path in found]


def text_of(page: str) -> str:
    """What is in a page."""
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page.

    Raises:
        ValueError: for a fence that is never closed.
    """
    found: list[Block] = []
    lines = text_of(page).splitlines()
    at = 0
    while at < len(lines):
        opening = _FENCE.match(lines[at])
        if opening is None:
            at += 1
            continue
        try:
            end = lines.index("```", at + 1)
        except ValueError:
            raise ValueError(f"{page}:{at + 1}: this block is never closed") from None
        above = re.fullmatch(r"<!-- (.+) -->", lines[at - 1]) if at else None
        body = "\n".join(lines[at + 1 : end]) + "\n"
        found.append(Block(page, at + 1, opening[1], above[1] if above else "", body))
        at = end + 1
    return found


def shell_blocks(page: str) -> list[Block]:
    """The blocks that hold commands."""
    return [block for block in blocks(page) if block.language in SHELLS]


def prose(page: str) -> list[tuple[int, str]]:
    """The lines outside of fences, numbered from 1."""
    found, fenced = [], False
    for number, line in enumerate(text_of(page).splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced:
            found.append((number, line))
    return found


def indented_commands(page: str) -> list[str]:
    """Commands in blocks that are only indented, which nothing would run."""
    word = r"([A-Z_]+=\S+ )*(accord|curl|docker|make|pip|python|git|vllm|valkey-cli|redis-cli|export|set) "
    return [f"{page}:{number}: {line}" for number, line in prose(page) if re.match(rf"^ {{4,}}(\$ )?{word}", line)]


def anchors(page: str) -> set[str]:
    """The names that links into a page may use, as GitHub makes them."""
    found: dict[str, int] = {}
    names = set()
    for _, line in prose(page):
        heading = _HEADING.match(line)
        if heading is None:
            continue
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[2]).replace("`", "")
        name = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        count = found.get(name, 0)
        found[name] = count + 1
        names.add(f"{name}-{count}" if count else name)
    return names


def links(page: str) -> Iterator[tuple[int, str]]:
    """Line and target of every link and picture."""
    for number, line in prose(page):
        for match in [*_LINK.finditer(line), *_IMAGE.finditer(line)]:
            yield number, match[1]


def code(page: str) -> Iterator[tuple[int, str]]:
    """Line and text of what is set as code within prose."""
    for number, line in prose(page):
        for match in _CODE.finditer(line):
            yield number, match[1]
