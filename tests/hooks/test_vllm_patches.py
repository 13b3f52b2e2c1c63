from __future__ import annotations

from typing import Any

import pytest

from accord.hooks.vllm.patches import Patch, PatchSet


def doubled(original: Any, *args: Any) -> Any:
    """Twice what the original says."""
    return 2 * original(*args)


def fresh() -> Any:
    """A class to patch."""

    class Engine:
        def step(self, by: int) -> int:
            """Docs."""
            return by

        def load(self) -> int:
            return 1

    return Engine


def test_all_patches_are_in_force_and_undone() -> None:
    """Wrapped methods work through the wrapper until it is taken away."""
    engine = fresh()
    before = dict(vars(engine))
    patches = PatchSet([Patch(engine, "step", doubled), Patch(engine, "load", doubled)])
    patches.apply()
    assert patches.installed
    assert (engine().step(3), engine().load()) == (6, 2)
    assert engine.step.__doc__ == "Docs."
    patches.undo()
    assert not patches.installed
    assert dict(vars(engine)) == before


def test_applying_twice_wraps_once() -> None:
    """A second call does nothing."""
    engine = fresh()
    patches = PatchSet([Patch(engine, "load", doubled)])
    patches.apply()
    patches.apply()
    assert engine().load() == 2


class Stubborn(type):
    """A metaclass that lets nobody patch `load`."""

    def __setattr__(cls, name: str, value: Any) -> None:
        if name == "load":
            raise TypeError("cannot be set")
        super().__setattr__(name, value)


class Sealed(metaclass=Stubborn):
    """A class that cannot be patched."""

    def load(self) -> int:
        """One."""
        return 1


@pytest.mark.parametrize(("owner", "name"), [(Sealed, "load"), (Sealed, "absent"), (object(), "load")])
def test_half_done_patches_are_undone(owner: Any, name: str) -> None:
    """When one patch cannot be applied, none is, and nothing is marked as installed."""
    engine = fresh()
    before = dict(vars(engine))
    patches = PatchSet([Patch(engine, "step", doubled), Patch(owner, name, doubled)])
    with pytest.raises((AttributeError, TypeError)):
        patches.apply()
    assert not patches.installed
    assert dict(vars(engine)) == before


def test_a_method_is_wrapped_by_one_set_only() -> None:
    """Another set finds the method wrapped already."""
    engine = fresh()
    PatchSet([Patch(engine, "load", doubled)]).apply()
    with pytest.raises(AttributeError, match="wrapped already"):
        PatchSet([Patch(engine, "load", doubled)]).apply()
    assert engine().load() == 2


def test_undoing_leaves_what_others_patched_on_top() -> None:
    """Somebody else's later patch is not thrown away with ours."""
    engine = fresh()
    patches = PatchSet([Patch(engine, "load", doubled)])
    patches.apply()
    engine.load = lambda self: 7
    patches.undo()
    assert engine().load() == 7
