"""The HTTP side of accord: what engines poll and operators read.

`create_app` builds the application from `Settings`; `accord api` and `python -m accord.api` serve it. The commands in
`cli` talk to a running api, and need none of what it takes to serve one.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .app import create_app
    from .settings import Settings

__all__ = ["Settings", "create_app"]


def __getattr__(name: str) -> Any:
    # Imported on demand: an operator's laptop runs the commands without a web framework.
    if name == "create_app":
        from .app import create_app

        return create_app
    if name == "Settings":
        from .settings import Settings

        return Settings
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
