"""What was sampled, as series over time."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]


class Series:
    """The samples of a soak.

    Args:
        path: of the file that a `Sampler` wrote.
    """

    def __init__(self, path: Path) -> None:
        found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                found[row["subject"], row["measure"]].append((float(row["seconds"]), float(row["value"])))
        self._found = {name: np.array(points) for name, points in found.items()}
        self.seconds = max((float(points[-1, 0]) for points in self._found.values()), default=0.0)

    def get(self, subject: str, measure: str) -> tuple[Values, Values]:
        """Seconds [N] and values [N], empty when it was never sampled."""
        points = self._found.get((subject, measure), np.zeros((0, 2)))
        return points[:, 0], points[:, 1]

    def second_half(self, subject: str, measure: str) -> tuple[Values, Values]:
        """The same without what came before the middle of the soak, which is when everything warms up and fills."""
        seconds, values = self.get(subject, measure)
        late = seconds >= self.seconds / 2
        return seconds[late], values[late]

    def subjects(self, prefix: str) -> list[str]:
        """Those that begin so, in the order of the file."""
        return list(dict.fromkeys(subject for subject, _ in self._found if subject.startswith(prefix)))

    def measures(self, subject: str) -> list[str]:
        """What was sampled of a subject."""
        return [measure for name, measure in self._found if name == subject]


def growth(seconds: Values, values: Values) -> float:
    """What a series [N] gained between its first and its last sample, by the median of the slopes between all pairs of
    samples (Theil and Sen): a garbage collection or a rewrite of a file does not move it, a steady leak does.

    >>> growth(np.array([0.0, 1.0, 2.0, 3.0]), np.array([5.0, 6.0, 90.0, 8.0]))
    3.0
    """
    if len(seconds) < 2:
        return 0.0
    first, second = np.triu_indices(len(seconds), 1)
    # a busy machine takes two samples in one tenth of a second
    apart = seconds[second] > seconds[first]
    first, second = first[apart], second[apart]
    if not len(first):
        return 0.0
    slopes = (values[second] - values[first]) / (seconds[second] - seconds[first])
    return float(np.median(slopes) * (seconds[-1] - seconds[0]))
