"""Text of others, made safe to show."""

from __future__ import annotations

REPLACEMENT = "\ufffd"


def plain(text: object, instead: str = REPLACEMENT) -> str:
    r"""Text for a terminal: what it would obey (control characters, marks that turn the direction) is replaced.

    Args:
        text: anything, shown as `str` does.
        instead: what stands for each such character; line ends are among them.

    >>> plain("é \x1b[31m", "?"), plain("a\u202eb\n", "?")
    ('é ?[31m', 'a?b?')
    """
    return "".join(letter if letter.isprintable() else instead for letter in str(text))
