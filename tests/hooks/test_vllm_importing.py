from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from accord.hooks.vllm.importing import when_imported


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module that was not imported yet."""
    name = "accord_test_pkg.runner"
    package = tmp_path / "accord_test_pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "runner.py").write_text("def run():\n    return 1\n\nready = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = list(sys.meta_path)
    yield name
    sys.meta_path[:] = before
    for loaded in (name, "accord_test_pkg"):
        sys.modules.pop(loaded, None)


def test_the_callback_follows_the_import(module: str) -> None:
    """It is called once, with the finished module, and does not import it by itself."""
    seen: list[ModuleType] = []
    when_imported(module, seen.append)
    assert module not in sys.modules
    found = importlib.import_module(module)
    importlib.import_module(module)
    assert seen == [found]
    assert found.ready


def test_a_module_that_is_there_calls_back_at_once(module: str) -> None:
    """Whoever comes late is not forgotten."""
    found = importlib.import_module(module)
    seen: list[ModuleType] = []
    when_imported(module, seen.append)
    assert seen == [found]


def test_the_module_looks_as_if_nobody_had_watched(module: str) -> None:
    """Loader, source and `sys.meta_path` are what they would have been."""
    before = list(sys.meta_path)
    when_imported(module, lambda found: None)
    found = importlib.import_module(module)
    assert sys.meta_path == before
    assert type(found.__loader__).__name__ == "SourceFileLoader"
    assert found.__spec__ is not None
    assert found.__spec__.loader is found.__loader__
    assert "return 1" in inspect.getsource(found.run)


def test_two_can_watch_one_module(module: str) -> None:
    """Both are called."""
    seen: list[str] = []
    when_imported(module, lambda found: seen.append("first"))
    when_imported(module, lambda found: seen.append("second"))
    importlib.import_module(module)
    assert sorted(seen) == ["first", "second"]


def test_what_the_callback_raises_fails_the_import(module: str) -> None:
    """An error that was asked for reaches the importer; the next import is an ordinary one."""

    def fail(found: ModuleType) -> None:
        raise RuntimeError("strict")

    when_imported(module, fail)
    with pytest.raises(RuntimeError, match="strict"):
        importlib.import_module(module)
    assert importlib.import_module(module).ready


def test_other_modules_are_left_alone(module: str) -> None:
    """A watch for a module that never comes changes nothing for the others, also for those that do not exist."""
    when_imported("accord_test_pkg.absent", lambda found: None)
    assert importlib.import_module(module).ready
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("accord_test_pkg.absent")
