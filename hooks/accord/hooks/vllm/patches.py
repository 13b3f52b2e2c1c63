"""Wraps methods of somebody else's classes, all of them or none."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Wrapper = Callable[..., Any]
MARK = "__accord_wraps__"


@dataclass(frozen=True)
class Patch:
    """One method to wrap.

    Attributes:
        owner: the class (or module) that defines it.
        name: of the attribute.
        wrapper: called as wrapper(original, self, *args, **kwargs).
    """

    owner: Any
    name: str
    wrapper: Wrapper


class PatchSet:
    """Applies patches; undoes every one of them when one cannot be applied.

    Attributes:
        installed: whether all of them are in force.

    >>> class Engine:
    ...     def step(self): return 1
    >>> patches = PatchSet([Patch(Engine, "step", lambda original, self: original(self) + 1)])
    >>> patches.apply(); Engine().step()
    2
    >>> patches.undo(); Engine().step()
    1
    """

    def __init__(self, patches: Sequence[Patch]) -> None:
        self._patches = tuple(patches)
        self._undo: list[tuple[Patch, Any, Any]] = []
        self.installed = False

    def apply(self) -> None:
        """Puts all patches in force; a second call does nothing.

        Raises:
            AttributeError: or whatever a class raises that does not let itself be patched; nothing is left patched.
        """
        if self.installed:
            return
        try:
            for patch in self._patches:
                # The class itself must define it: wrapping an inherited method here would hide later changes there.
                original = vars(patch.owner)[patch.name]
                if getattr(original, MARK, None) is not None:
                    raise AttributeError(f"{_name(patch)} is wrapped already")
                wrapped = _wrapped(original, patch.wrapper)
                setattr(patch.owner, patch.name, wrapped)
                self._undo.append((patch, original, wrapped))
        except KeyError as error:
            self.undo()
            raise AttributeError(f"no attribute {error} of its own") from None
        except BaseException:
            self.undo()
            raise
        self.installed = True

    def undo(self) -> None:
        """Puts back the originals, unless somebody else has patched on top since."""
        for patch, original, wrapped in reversed(self._undo):
            if vars(patch.owner).get(patch.name) is wrapped:
                setattr(patch.owner, patch.name, original)
        self._undo.clear()
        self.installed = False


def _wrapped(original: Any, wrapper: Wrapper) -> Any:
    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return wrapper(original, *args, **kwargs)

    setattr(wrapped, MARK, original)
    return wrapped


def _name(patch: Patch) -> str:
    return f"{getattr(patch.owner, '__qualname__', patch.owner)}.{patch.name}"
