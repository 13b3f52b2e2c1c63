"""What Prometheus scrapes from the api: its own work, and the fleet as the store shows it.

`Metrics` belongs to one application; `fleet` reads the store, `families` names what was read, `requests` counts.
"""

from .registry import Metrics
from .requests import RequestMetricsMiddleware

__all__ = ["Metrics", "RequestMetricsMiddleware"]
