"""Calls back when a module has been imported, without importing it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType

Callback = Callable[[ModuleType], None]


def when_imported(name: str, callback: Callback) -> None:
    """Calls `callback(module)` right after the module's code has run: now, if that is already so.

    What the callback raises reaches whoever imports the module.

    Args:
        name: full name of the module.
        callback: called once, on the importing thread.
    """
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    # A module that is still running its code is not usable yet; its loader was chosen before we could wrap it.
    if module is not None and not getattr(spec, "_initializing", False):
        callback(module)
        return
    sys.meta_path.insert(0, _Watch(name, callback))


class _Watch(importlib.abc.MetaPathFinder):
    """Finds one module with everybody else's finders, wraps its loader, and leaves `sys.meta_path`."""

    def __init__(self, name: str, callback: Callback) -> None:
        self._name, self._callback = name, callback
        self._finding = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name or getattr(self._finding, "now", False):
            return None
        self._finding.now = True
        try:
            spec = self._others(fullname, path, target)
        finally:
            self._finding.now = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._done)
        return spec

    def _others(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> importlib.machinery.ModuleSpec | None:
        for finder in sys.meta_path:
            # Two watches of one module chain: each wraps the loader that the next one found.
            if finder is not self and (spec := finder.find_spec(fullname, path, target)) is not None:
                return spec
        return None

    def _done(self, module: ModuleType) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self._callback(module)


class _Loader(importlib.abc.Loader):
    """Another loader, and a word when it is done."""

    def __init__(self, inner: importlib.abc.Loader, done: Callback) -> None:
        self._inner, self._done = inner, done

    def __getattr__(self, name: str) -> object:
        # get_source, get_data, path and whatever else linecache, inspect or pkgutil ask of the real loader.
        return getattr(self._inner, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module keeps its real loader, as if nobody had watched.
        module.__loader__ = self._inner
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        self._inner.exec_module(module)
        self._done(module)
