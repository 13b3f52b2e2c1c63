"""Commands of the pages, held against the real command line, without running them."""

from __future__ import annotations

import importlib
import itertools
import re
import shlex
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from typing import Any

import typer
from typer.main import get_command

from accord.learner.cli import GROUP, build_app

from .markdown import ROOT

_ENDS = re.compile(r"^[;&|()\n<>]+$")
_ASSIGNMENT = re.compile(r"^\w+=")
_MODULES = {"accord.hooks.replay": "accord.hooks.replay.command:replay"}
"""What `python -m` runs, and where its options are."""


_IMAGES = ("accord", "accord-engine")
"""Images whose entry point, as the pages start them, is `accord`."""


def invocations(script: str) -> Iterator[list[str]]:
    """The simple commands of a script, as words.

    >>> list(invocations("A=1 accord show x | head -3"))
    [['accord', 'show', 'x'], ['head', '-3']]
    """
    script = re.sub(r"\\\n", " ", script)
    # What stands in $( ) is a command too.
    script = re.sub(r'"?\$\((?!\()', " ; ", script)
    for line in script.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()<>")
        lexer.whitespace_split, lexer.commenters = True, "#"
        try:
            words = list(lexer)
        except ValueError:
            # Half of a quotation that goes over lines, or that a $( ) was cut out of.
            words = line.replace('"', " ").replace("'", " ").split()
        yield from _commands(words)


def _commands(words: list[str]) -> Iterator[list[str]]:
    current: list[str] = []
    for word in [*words, ";"]:
        if _ENDS.match(word):
            if current:
                yield current
            current = []
        elif current or not _ASSIGNMENT.match(word):
            current.append(word)


def faults(words: list[str]) -> list[str]:
    """What the real command line would not take; empty for commands of others."""
    words = [*words]
    while words and words[0] in ("sudo", "exec", "time", "env"):
        words.pop(0)
        while words[:1] == ["-u"]:
            words = words[2:]
    if not words:
        return []
    name = words[0].rpartition("/")[2]
    if name == "accord":
        return accord_faults(words[1:])
    if name.startswith("python") and words[1:2] == ["-m"] and len(words) > 2:
        return _module_faults(words[2], words[3:])
    if name == "make":
        return _make_faults(words[1:])
    if name == "docker":
        return _docker_faults(words[1:])
    if name == "pip":
        return _extra_faults(words)
    return []


def accord_faults(words: list[str]) -> list[str]:
    """What `accord` would not take.

    >>> accord_faults(["evaluate", "--trace", "FILE"]), accord_faults(["evaluate", "--tarce", "FILE"])
    ([], ['accord evaluate has no option --tarce'])
    """
    if not words or words[0].startswith("-"):
        root = get_command(build_app())
        return _option_faults("accord", root, words)
    command = subcommand(words[0])
    if command is None:
        return [f"there is no command accord {words[0]}"]
    name, rest = f"accord {words[0]}", words[1:]
    children = getattr(command, "commands", None)
    if children is not None and rest and not rest[0].startswith("-"):
        if rest[0] not in children:
            return [f"there is no command {name} {rest[0]}"]
        name, command, rest = f"{name} {rest[0]}", children[rest[0]], rest[1:]
    return _option_faults(name, command, rest)


@cache
def subcommand(name: str) -> Any:
    """A command of `accord`, or None."""
    for entry in metadata.entry_points(group=GROUP):
        if entry.name == name:
            return _click(entry.load())
    return None


def _click(found: Any) -> Any:
    if isinstance(found, typer.Typer):
        return get_command(found)
    app = typer.Typer(add_completion=False)
    app.command()(found)
    return get_command(app)


def _option_faults(name: str, command: Any, words: list[str]) -> list[str]:
    known = {option for item in command.params for option in (*item.opts, *item.secondary_opts)} | {"--help"}
    wrong = []
    for word in words:
        option = word.partition("=")[0]
        if re.match(r"^--?[a-z]", option) and option not in known:
            wrong.append(f"{name} has no option {option}")
    return wrong


def _module_faults(module: str, words: list[str]) -> list[str]:
    if module in _MODULES:
        where, _, attribute = _MODULES[module].partition(":")
        return _option_faults(f"python -m {module}", _click(getattr(importlib.import_module(where), attribute)), words)
    if module == "tests.bench":
        known = {path.stem for path in (ROOT / "tests" / "bench").glob("*.py")}
        return [f"there is no bench {word}" for word in words[:1] if not word.startswith("-") and word not in known]
    if module.startswith(("accord.", "tests.")) and importlib.util.find_spec(module) is None:
        return [f"there is no module {module}"]
    return []


def _make_faults(words: list[str]) -> list[str]:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    given = [word for word in words if not word.startswith("-") and "=" not in word]
    return [f"the Makefile has no target {word}" for word in given if word not in targets]


def _docker_faults(words: list[str]) -> list[str]:
    wrong = []
    images = [at for at, word in enumerate(words) if word in _IMAGES]
    if words[:1] == ["run"] and images:
        wrong += accord_faults(words[images[-1] + 1 :])
    for option, value in itertools.pairwise(words):
        if option in ("-f", "--file") and not (ROOT / value).is_file():
            wrong.append(f"there is no file {value}")
        if option == "--profile":
            profiles = re.findall(r"profiles: \[(\w+)\]", (ROOT / "docker" / "compose.yaml").read_text())
            if value not in profiles:
                wrong.append(f"compose.yaml has no profile {value}")
    return wrong


def _extra_faults(words: list[str]) -> list[str]:
    known = set(metadata.metadata("accord").get_all("Provides-Extra") or ())
    wrong = []
    for word in words:
        found = re.match(r"accord\[([a-z,]+)\]", word)
        if found:
            wrong += [f"accord has no extra {extra}" for extra in found[1].split(",") if extra not in known]
    return wrong
