"""Free text that people send and others will read, on a page, in a terminal or in a log."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

# Control characters but tab and line feed; marks that turn the direction of what follows, so that a line reads as
# something else than it says; separators that some programs take for line ends;
# and halves of characters, which nothing can be encoded with.
_UNSAFE = r"\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_FOUND = re.compile(f"[{_UNSAFE}]")
PATTERN = rf"^[^{_UNSAFE}]*[^\s{_UNSAFE}][^{_UNSAFE}]*$"
"""The same as one pattern, for clients that check before they send."""


def _safe(text: str) -> str:
    found = _FOUND.search(text)
    if found is not None:
        raise PydanticCustomError(
            "unsafe_text",
            "must hold no control characters, half characters or marks that turn the direction of text: {character}",
            {"character": f"U+{ord(found[0]):04X}"},
        )
    if not text.strip():
        raise PydanticCustomError("blank_text", "must not be blank")
    return text


SafeText = Annotated[str, AfterValidator(_safe), Field(json_schema_extra={"pattern": PATTERN})]
"""At least one character that is not blank, and none that could deceive or be obeyed where it is shown."""
