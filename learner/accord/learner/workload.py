"""Workload keys: what kind of traffic a request is, and how it is sampled."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from .errors import InvalidValue

_LABEL = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
DEFAULT_LABEL = "default"
OTHER_LABEL = "other"
"""The label of what finds no room in a bounded table of workloads."""


class TemperatureClass(StrEnum):
    """How a request is sampled. Acceptance depends on it at least as much as on the kind of traffic."""

    GREEDY = "greedy"
    COOL = "cool"
    WARM = "warm"
    SAMPLED = "sampled"
    HOT = "hot"
    CONSTRAINED = "constrained"
    """The target applies transforms that the draft does not see (penalties, structured output, ...)."""

    @classmethod
    def of(cls, temperature: float, *, constrained: bool = False) -> TemperatureClass:
        """The class of a sampling temperature.

        >>> TemperatureClass.of(0.7).value, TemperatureClass.of(0.0).value
        ('warm', 'greedy')
        """
        if constrained:
            return cls.CONSTRAINED
        if not temperature >= 0.0 or temperature == float("inf"):
            raise InvalidValue("temperature", temperature, "must be a finite number >= 0")
        if temperature == 0.0:
            return cls.GREEDY
        for limit, found in ((0.5, cls.COOL), (0.85, cls.WARM), (1.15, cls.SAMPLED)):
            if temperature <= limit:
                return found
        return cls.HOT


@dataclass(frozen=True, order=True)
class WorkloadKey:
    """`label:class`, the unit that has coefficients of its own.

    >>> str(WorkloadKey.parse("code:greedy"))
    'code:greedy'
    """

    label: str
    temperature_class: TemperatureClass

    def __post_init__(self) -> None:
        if not isinstance(self.label, str) or not _LABEL.fullmatch(self.label):
            raise InvalidValue("label", self.label, "must match [a-z0-9][a-z0-9._-]{0,63}")
        if not isinstance(self.temperature_class, TemperatureClass):
            raise InvalidValue("class", self.temperature_class, "must be a TemperatureClass")

    @classmethod
    def parse(cls, text: str) -> WorkloadKey:
        """Parses `label:class`; raises InvalidValue that names what is wrong."""
        if not isinstance(text, str):
            raise InvalidValue("workload", text, "must be text of the form label:class")
        label, colon, kind = text.partition(":")
        if not colon:
            raise InvalidValue("workload", text, "must have the form label:class")
        try:
            return cls(label, TemperatureClass(kind))
        except InvalidValue:
            raise InvalidValue("workload", text, "label must match [a-z0-9][a-z0-9._-]{0,63}") from None
        except ValueError:
            known = ", ".join(c.value for c in TemperatureClass)
            raise InvalidValue("workload", text, f"class must be one of {known}") from None

    def __str__(self) -> str:
        return f"{self.label}:{self.temperature_class.value}"
