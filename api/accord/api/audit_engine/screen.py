"""An audit on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .audit import Report
from .judge import Judgement


def show(report: Report, console: Console) -> None:
    """Prints a report."""
    for name, found in report.engines.items():
        console.print(f"[bold]{escape(name)}[/bold]: {found.verdict.value}")
        console.print(f"  {escape(found.message)}", soft_wrap=True)
        if found.tokens_per_step is not None and found.drafts > 0.0:
            console.print(
                f"  {found.drafts:,.0f} drafts, {found.mean_accepted_length:.2f} accepted of "
                f"{found.drafted_per_step:.2f} drafted, {found.tokens_per_step:.2f} tokens per step",
                soft_wrap=True,
            )
        if found.acceptance and found.conditional:
            console.print(_positions(found))
        for kind, lines in (("check next", found.check_next), ("note", found.notes)):
            for line in lines:
                console.print(f"  {kind}: {escape(line)}", soft_wrap=True)
    if report.silent:
        console.print(f"without speculation: {escape(', '.join(report.silent))}", soft_wrap=True)
    if report.load is not None:
        _load(report, console)
    for note in report.notes:
        console.print(f"note: {escape(note)}", soft_wrap=True)
    console.print(f"[bold]{escape(report.message)}[/bold] (exit code {report.exit_code})", soft_wrap=True)


def _positions(found: Judgement) -> Table:
    table = Table(box=None, pad_edge=True)
    for column in ("position", "accepted", "of those that got there", "tokens per step with this K"):
        table.add_column(column, justify="right")
    for at, (share, of_those) in enumerate(zip(found.acceptance or [], found.conditional or [], strict=True)):
        tokens = found.tokens_by_k[at + 1] if found.tokens_by_k else None
        table.add_row(str(at), f"{share:.1%}", f"{of_those:.1%}", f"{tokens:.2f}" if tokens is not None else "")
    return table


def _load(report: Report, console: Console) -> None:
    load = report.load
    assert load is not None
    repeat = f"{load.compared - load.mismatches} of {load.compared} greedy answers repeat"
    console.print(f"load: {load.sent} requests, {load.tokens:,} tokens in {load.seconds:.1f} s; {repeat}")
    for example in load.examples:
        console.print(
            f"  differs from character {example['from_character']} on: {escape(example['prompt'])}\n"
            f"    {escape(example['first'])}\n    {escape(example['second'])}",
            soft_wrap=True,
        )
