"""The `accord` command: subcommands come from the entry point group `accord.commands`, imported when called."""

from __future__ import annotations

import ast
import errno
import os
import re
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command

from .errors import AccordError
from .plain_text import plain

GROUP = "accord.commands"
DISTRIBUTION = "accord"
EXIT_REFUSED = AccordError.exit_code
"""Exit code for what the caller can mend: a bad value, an unreadable file, a missing extra."""

COMPLETING = "_ACCORD_COMPLETE"
"""Set by a shell that asks for completions."""

_EXTRA = re.compile(r"(?P<name>[A-Za-z0-9._-]+).*;.*extra\s*==\s*[\"'](?P<extra>[a-z]+)[\"']")
_COLLECTIONS = {"all", "test"}
"""Extras that gather others: never the shortest answer."""

_PASS_EVERYTHING_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}


class MissingExtraError(AccordError):
    """A command needs a package that is not installed; the message says how to install it."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; never returns.

    Args:
        arguments: without the program's name; default those of the process.

    Raises:
        SystemExit: 0, the command's own code, or 2 with one line on stderr for any AccordError.
    """
    if sys.stdout is None:
        # Closed by whoever started this: what is printed goes nowhere, as it was wished.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        get_command(build_app()).main(args=None if arguments is None else list(arguments), prog_name="accord")
    except AccordError as error:
        typer.echo(f"accord: {plain(' '.join(str(error).split()))}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        # A full disk, above all: what is wrong with files and sockets is told by whoever opens them.
        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG):
            raise
        typer.echo(f"accord: cannot write: {error.strerror}", err=True)
        _forget_output()
    except ImportError as error:
        # A command may import its extra only once it runs. Anything else that is missing is a fault of ours.
        if (extra := extra_of(error.name)) is None:
            raise
        typer.echo(f"accord: {_install(extra, error)}", err=True)
    sys.exit(EXIT_REFUSED)


def _forget_output() -> None:
    """Nothing is left that Python would write, and fail to, on its way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def build_app() -> typer.Typer:
    """The application, with a light stand-in for every declared command."""
    app = typer.Typer(name="accord", no_args_is_help=True, pretty_exceptions_enable=False)
    app.callback()(_root)
    completed = _completed() if COMPLETING in os.environ else None
    for entry in sorted(metadata.entry_points(group=GROUP), key=lambda entry: entry.name):
        if entry.name == completed and _completable(app, entry):
            continue
        settings = dict(_PASS_EVERYTHING_ON)
        register = app.command(entry.name, help=summary(entry), add_help_option=False, context_settings=settings)
        register(_runner(entry))
    return app


def summary(entry: metadata.EntryPoint) -> str:
    """One line of help, read from the command's docstring without importing it.

    The docstring is that of the function, or of the module when the entry point is not a function.
    """
    source = source_of(entry.module)
    if source is None:
        return "(not part of this installation)"
    tree = ast.parse(source.read_bytes())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    text = ast.get_docstring(functions.get(entry.attr, tree)) or ""
    return text.partition("\n")[0]


def extra_of(package: str | None) -> str | None:
    """The extra that brings an import package, or None.

    >>> extra_of("fastapi.responses"), extra_of("numpy"), extra_of(None)
    ('api', None, None)
    """
    wanted = (package or "").partition(".")[0].replace("_", "-").lower()
    for requirement in metadata.requires(DISTRIBUTION) or ():
        found = _EXTRA.match(requirement)
        if found and found["name"].lower() == wanted and found["extra"] not in _COLLECTIONS:
            return found["extra"]
    return None


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=lambda v: _version(v)),
    ] = False,
) -> None:
    """Learns online, for a whole fleet of LLM engines, how likely each draft token is to be accepted."""


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"accord {metadata.version(DISTRIBUTION)}")
        raise typer.Exit


def _runner(entry: metadata.EntryPoint) -> Callable[[typer.Context], None]:
    def run(ctx: typer.Context) -> None:
        get_command(_load(entry)).main(args=list(ctx.args), prog_name=f"accord {entry.name}")

    return run


def _completed() -> str | None:
    """The command whose options or arguments a shell wants completed."""
    words = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    return words.split()[1] if len(words.split()) > 1 else None


def _completable(app: typer.Typer, entry: metadata.EntryPoint) -> bool:
    """Adds the command itself, whose options the shell asks for; False when it cannot be loaded."""
    try:
        command = _loaded(entry)
    except (AccordError, ImportError):
        return False
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=entry.name)
    else:
        app.command(entry.name)(command)
    return True


def _load(entry: metadata.EntryPoint) -> typer.Typer:
    command = _loaded(entry)
    if isinstance(command, typer.Typer):
        return command
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(command)
    return app


def _loaded(entry: metadata.EntryPoint) -> Any:
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        name = error.name if isinstance(error, ImportError) else None
        if (extra := extra_of(name)) is not None:
            raise MissingExtraError(_install(extra, error)) from None
        if source_of(entry.module) is not None:
            raise
        raise MissingExtraError(f"the command {entry.name} is not part of this installation") from None


def source_of(module: str) -> Path | None:
    """The source file of a module, found without importing the packages that it is in; None when there is none."""
    spec, places = None, None
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:depth]), places)
        if spec is None:
            return None
        places = list(spec.submodule_search_locations or ())
    return Path(spec.origin) if spec is not None and spec.origin is not None and spec.has_location else None


def _install(extra: str, error: Exception) -> str:
    return f"{error}; install it with: pip install 'accord[{extra}]'"
