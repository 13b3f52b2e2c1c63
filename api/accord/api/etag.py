"""`If-None-Match` and `If-Match` as RFC 9110 defines them: a list of entity tags, or `*`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

# A tag may hold commas, so the list cannot be split at them.
_TAG = re.compile(r'[ \t]*(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")[ \t]*')
_ANY_TAG = re.compile(r'(W/)?("[\x21\x23-\x7e\x80-\xff]*")')
_TAGS = re.compile(rf"{_ANY_TAG.pattern}(?:[ \t]*,[ \t]*{_ANY_TAG.pattern})*")
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


@dataclass(frozen=True)
class IfMatch:
    """The tags of what a client means to change.

    >>> IfMatch.parse(['"7", "8"']).matches('"8"'), IfMatch.parse(['W/"7"']).matches('"7"')
    (True, False)
    """

    tags: frozenset[str] = frozenset()
    anything: bool = False

    @classmethod
    def parse(cls, lines: Iterable[str]) -> IfMatch:
        """Parses all header lines of a request.

        Raises:
            ValueError: for what does not follow the grammar.
        """
        text = ",".join(lines).strip(" \t")
        if text == "*":
            return cls(anything=True)
        if not _TAGS.fullmatch(text):
            raise ValueError('must be "*" or quoted tags such as "7"')
        return cls(frozenset(tag for weak, tag in _ANY_TAG.findall(text) if not weak))

    def matches(self, etag: str) -> bool:
        """Whether this is what the client means (strong comparison: a weak tag never is)."""
        return self.anything or etag in self.tags
