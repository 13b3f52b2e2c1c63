"""What another table means for recent traffic: labels and quality for the history, and where it predicts worse."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from .calibration import Cells, metrics
from .changes import Change
from .coefficients import CoefficientTable
from .pair_state import PairState
from .what_if import Assessment, Verdict, assess


@dataclass(frozen=True)
class Effects:
    """How a table would have predicted a pair's recent labels.

    Args:
        labels: workload -> every label ever learnt.
        metrics: workload -> see `calibration.metrics`.
        worse: workload -> comparison with the learnt row, where the table is worse by more than the noise.
    """

    labels: dict[str, int] = field(default_factory=dict)
    metrics: dict[str, dict[str, float | None]] = field(default_factory=dict)
    worse: dict[str, Assessment] = field(default_factory=dict)

    def warning(self) -> dict[str, Any] | None:
        """What whoever serves the table must be told, None when it is nowhere worse; the worst workload speaks."""
        judged = {key: found.difference for key, found in self.worse.items() if found.difference is not None}
        if not judged:
            return None
        key, worst = max(judged.items(), key=lambda item: item[1].log_loss)
        others = f"; {len(judged) - 1} other workloads get worse too" if len(judged) > 1 else ""
        message = (
            f"{key}: {worst.log_loss:.3f} nats per label worse than what was learnt "
            f"(noise {worst.noise:.3f}, {self.worse[key].labels:,.0f} recent labels){others}"
        )
        return {"message": message, "log_loss_worse_by": worst.log_loss, "noise": worst.noise}


def effects(state: PairState, learnt: CoefficientTable, table: CoefficientTable) -> Effects:
    """Judges a table on the sketches of a state, against the learnt table. All three must have the same K and knots."""
    found = Effects(dict(zip(state.keys, state.labels.tolist(), strict=True)))
    for index, key in enumerate(state.keys):
        sketch, row = state.arrays["acceptance"][index], table.row(key)
        found.metrics[key] = metrics(Cells.of(sketch, row, state.basis))
        if row.to_dict() != learnt.row(key).to_dict():
            judged = assess(sketch, row, learnt.row(key), state.basis)
            if judged.verdict is Verdict.WORSE:
                found.worse[key] = judged
    return found


def explained(change: Change, found: Effects) -> Change:
    """The change with labels and metrics in its history entry."""
    return replace(change, history={**change.history, "labels": found.labels, "metrics": found.metrics})
