"""Tests on a real vLLM, on a CPU: `make test-engine` makes the environment and runs them."""

from __future__ import annotations

import importlib.util
import os

import pytest

# Elsewhere nothing here can even be imported, so nothing is collected and `make test` needs no marker expression.
if importlib.util.find_spec("vllm") is None or os.environ.get("TRITON_INTERPRET") != "1":
    collect_ignore_glob = ["test_*.py"]


def pytest_configure(config: pytest.Config) -> None:
    """Warnings of vLLM, of torch and of the interpreter's arithmetic are not ours to mend."""
    for rule in ("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning", "ignore::ImportWarning"):
        config.addinivalue_line("filterwarnings", rule)
    config.addinivalue_line("filterwarnings", "ignore::RuntimeWarning:triton")
