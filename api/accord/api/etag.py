"""`If-None-Match` as RFC 9110 defines it: a list of entity tags, or `*`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

# A tag may hold commas, so the list cannot be split at them.
_TAG = re.compile(r'[ \t]*(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")[ \t]*')
_NOTHING = re.compile(r"[ \t]*")


@dataclass(frozen=True)
class IfNoneMatch:
    """The tags that a client holds.

    >>> IfNoneMatch.parse(['W/"a", "b,c"']).matches('"b,c"')
    True
    """

    tags: frozenset[str] = frozenset()
    anything: bool = False

    @classmethod
    def parse(cls, lines: Iterable[str]) -> IfNoneMatch:
        """Parses all header lines of a request. What does not follow the grammar matches nothing: the client then gets
        the whole body, which is always right."""
        text = ",".join(lines)
        if text.strip(" \t") == "*":
            return cls(anything=True)
        tags, at = set(), 0
        while True:
            found = _TAG.match(text, at)
            if found:
                tags.add(found[1])
            else:
                found = _NOTHING.match(text, at)
            at = found.end() if found else at
            if at == len(text):
                return cls(frozenset(tags))
            if text[at] != ",":
                return cls()
            at += 1

    def matches(self, etag: str) -> bool:
        """Whether the client holds this representation (weak comparison, as a conditional GET asks for)."""
        return self.anything or etag.removeprefix("W/") in self.tags
