"""The HTTP side of accord: what engines poll and operators read.

`create_app` builds the application from `Settings`; `accord api` and `python -m accord.api` serve it.
"""

from .app import create_app
from .settings import Settings

__all__ = ["Settings", "create_app"]
