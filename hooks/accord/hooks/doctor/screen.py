"""The report for people: one line a check."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .report import Report, Status

_STYLES = {Status.OK: "green", Status.WARN: "yellow", Status.FAIL: "bold red", Status.SKIP: "dim"}


def show(report: Report, console: Console) -> None:
    """Prints every check, what to do about it underneath, and a last line that says how it ended."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in report.checks:
        style = _STYLES[check.status]
        # Text, not markup: what servers say may hold brackets.
        table.add_row(Text(check.status.value, style), Text(check.name), Text(check.found))
        if check.advice:
            table.add_row("", "", Text(f"-> {check.advice}", "dim" if check.status is Status.SKIP else style))
    console.print(table)
    fails = sum(check.status is Status.FAIL for check in report.checks)
    warns = sum(check.status is Status.WARN for check in report.checks)
    if fails:
        console.print(Text(f"\n{fails} would not work, {warns} could be better", "bold red"))
    elif warns:
        console.print(Text(f"\nit would work; {warns} could be better", "yellow"))
    else:
        console.print(Text("\nit would work", "green"))
