"""`accord demo` and `accord up`."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .stack import Stack, default_folder
from .story import Ending, Story
from .up import ended_by_signal, serve, supervise

_LOG_WIDTH = 120


def demo(
    trace: Annotated[Path | None, typer.Option(help="Recorded trace; the bundled one by default.")] = None,
    engines: Annotated[int, typer.Option(min=1, max=16, help="Replay engines.")] = 3,
    act: Annotated[float, typer.Option(min=5.0, max=600.0, help="Seconds of each quiet act.")] = 15.0,
    stay: Annotated[bool, typer.Option("--stay", help="Keep the fleet and the page running until Ctrl-C.")] = False,
) -> None:
    """Learn a recorded trace end to end with an embedded store, and take parts of it away on the way."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_LOG_WIDTH)
    with tempfile.TemporaryDirectory(prefix="accord-demo-") as folder:
        story = Story(console, Path(folder), act_s=act, engines=engines, trace=trace)

        def keep_running(ending: Ending) -> None:
            _print(console, ending)
            ended = ended_by_signal()
            console.print(f"the page: {story.stack.api_url}/ (Ctrl-C ends it)")
            supervise(story.stack, ended)

        ending = story.run(keep_running if stay else None)
    if not stay:
        _print(console, ending)
        console.print(f"the page was at {story.stack.api_url}/; with --stay it keeps running")
    raise typer.Exit(0 if ending.good else 1)


def up(
    redis_url: Annotated[str | None, typer.Option(help="An existing store (ACCORD_REDIS_URL).")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder for the embedded store's data and all logs.")] = None,
    learners: Annotated[int, typer.Option(min=1, max=64, help="Learner processes.")] = 1,
    host: Annotated[str, typer.Option(help="Address of the API.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the API, 0 for any free one.")] = 8790,
) -> None:
    """Run the service alone, in the foreground: embedded store unless one is given, learners and API."""
    url = redis_url or os.environ.get("ACCORD_REDIS_URL") or None
    serve(Stack(data or default_folder(), redis_url=url, learners=learners, host=host, port=port))


def _print(console: Console, ending: Ending) -> None:
    console.print()
    console.print(f"decode steps    {ending.steps:,} by {len(ending.exits)} engines, in every act by each of them")
    median, longest = ending.step_ms
    console.print(f"a step took     {median:.1f} ms at the median, {longest:.1f} ms at most, outages included")
    console.print(f"labels          {ending.sent:,} sent, {ending.learnt:,} learnt, {ending.lost:,} lost")
    console.print(f"coefficients    version {ending.version}")
    for name, (ours, theirs) in (("log-loss", ending.log_loss), ("workload ECE", ending.workload_ece)):
        ratio = f", ratio {ours / theirs:.3f}" if theirs else ""
        console.print(f"{name:<15} {ours:.4f} accord, {theirs:.4f} vLLM's rule{ratio}")
    console.print(
        "everything arrived exactly once" if ending.good else f"[red]not as it should be: {ending.wrong}[/red]"
    )
