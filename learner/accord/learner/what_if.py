"""What other coefficients would have been worth on recent traffic, judged on a workload's acceptance sketch.

Both rows predict the same labels, so their losses are compared label by label (paired). With d = log-loss of the
proposed row minus log-loss of the row in force, over n recent labels:

    difference = sum d / n,    noise = sqrt((sum d^2 / n - difference^2) / n)

which is the standard error of a paired mean, summed cell by cell (`guard.differences`). Recent means faded: old labels
count less, and n is the sum of what they count, so the noise is stated too large rather than too small. Labels of one
request resemble each other, which works the other way; a verdict therefore asks for three standard errors, as the guard
does.

The sketch has no request identities: the request effect u is left out of both rows, and what another request_variance
would do cannot be judged here. An answer about rows that differ in it says so.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from .basis import Array, SplineBasis
from .calibration import Cells, metrics
from .coefficients import Coefficients
from .guard import MIN_JUDGED_LABELS, WORSE_BY_NOISE, differences, verdict
from .state_codec import decode_learnt

IMMATERIAL_NATS = 1e-4
"""A difference of log-loss below this decides nothing, however many labels there are."""


class Verdict(StrEnum):
    """What the labels say of a proposal."""

    BETTER = "better"
    NO_DIFFERENCE = "no_difference"
    WORSE = "worse"


@dataclass(frozen=True)
class Metrics:
    """How one row predicts; every figure None where there are too few labels.

    Attributes:
        log_loss: nats per label; ece, auc, brier: see `calibration.metrics`.
        accepted_per_step: drafts of a block that these coefficients expect to be accepted, see `expected_accepted`.
    """

    log_loss: float | None = None
    ece: float | None = None
    auc: float | None = None
    brier: float | None = None
    accepted_per_step: float | None = None


@dataclass(frozen=True)
class Difference:
    """Mean log-loss of the proposed row minus that of the row in force, nats per label, and its standard error."""

    log_loss: float
    noise: float


@dataclass(frozen=True)
class Assessment:
    """The answer to a what-if.

    Attributes:
        labels: recent labels, faded, that were judged.
        proposed, in_force: both rows on the same labels; learnt: the learner's own last fit, None when not given.
        realised_per_step: drafts of a block that were accepted, from the same labels; None without enough.
        difference: None with too few labels.
        verdict, message: in one word, and in a sentence.
        positions: for each draft position labels, accepted share, and the mean prediction of both rows.
        notes: what this answer cannot tell.
    """

    labels: float
    proposed: Metrics
    in_force: Metrics
    learnt: Metrics | None
    realised_per_step: float | None
    difference: Difference | None
    verdict: Verdict
    message: str
    positions: list[dict[str, float | None]]
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "verdict": self.verdict.value}


def assess(
    acceptance: Array,
    proposed: Coefficients,
    in_force: Coefficients,
    basis: SplineBasis,
    learnt: Coefficients | None = None,
) -> Assessment:
    """Judges a proposed row against the row in force.

    Args:
        acceptance: float64 [K, 64, 3], the acceptance sketch of one workload.
        proposed, in_force, learnt: rows with K intercepts and the basis' F slopes.
        basis: of the slopes.

    >>> basis = SplineBasis(())
    >>> sketch = np.zeros((1, 64, 3))
    >>> sketch[0, 16] = [4000.0, 2000.0, 0.0]  # half of 4,000 drafts accepted at f = 0
    >>> here, there = Coefficients([0.5], [0.0]), Coefficients([0.5], [1.0])
    >>> assess(sketch, there, here, basis).message
    '0.120 nats per label worse than what is in force (noise 0.008, 4,000 recent labels)'
    """
    before, after = Cells.of(acceptance, in_force, basis), Cells.of(acceptance, proposed, basis)
    k = acceptance.shape[0]
    judged = verdict(*differences(acceptance, in_force, proposed, basis))
    notes = _notes(proposed, in_force)
    positions = _positions(k, after, before)
    if judged.labels < MIN_JUDGED_LABELS:
        few = f"{judged.labels:,.0f} recent labels are too few to tell: at least {MIN_JUDGED_LABELS:,.0f} are needed"
        unknown = Metrics()
        other = None if learnt is None else unknown
        return Assessment(
            judged.labels, unknown, unknown, other, None, None, Verdict.NO_DIFFERENCE, few, positions, notes
        )
    difference = Difference(judged.difference, judged.noise)
    word = _word(difference)
    return Assessment(
        labels=judged.labels,
        proposed=_metrics(k, after),
        in_force=_metrics(k, before),
        learnt=None if learnt is None else _metrics(k, Cells.of(acceptance, learnt, basis)),
        realised_per_step=_chain(_shares(k, before, before.accepted)),
        difference=difference,
        verdict=word,
        message=_message(word, difference, judged.labels),
        positions=positions,
        notes=notes,
    )


def assess_state(
    body: bytes | None, key: str, proposed: Coefficients, in_force: Coefficients, basis: SplineBasis
) -> Assessment:
    """Judges a row for a workload of a learnt state; the learner's own last fit is judged beside it.

    Args:
        body: the state's bytes, None for a pair that nobody has learnt yet.
        key: the workload; one that the state does not hold has no labels.
        proposed, in_force: rows that fit the pair; basis: of the pair's knots.

    Raises:
        Refusal: for bytes that are not a state.
    """
    if body is not None:
        state = decode_learnt(body).state
        if key in state.keys:
            index = state.keys.index(key)
            return assess(state.arrays["acceptance"][index], proposed, in_force, state.basis, state.row(index))
    return assess(np.zeros((proposed.k, 1, 3)), proposed, in_force, basis)


def expected_accepted(k: int, cells: Cells) -> float | None:
    """Drafts of a block that the coefficients of the cells expect to be accepted, were all K verified.

    sum over m of prod over j <= m of pbar[j], with pbar[j] the mean prediction over the labels of position j. A label
    exists where everything before it was accepted, so pbar[j] is what the row predicts for blocks that really got
    there. The approximation: which blocks get there is taken from what happened, not from the row. At coefficients that
    fit it therefore gives the length that was realised (tests: within 0.05 drafts on recorded traffic), where the
    product of a block's own predictions is up to 0.1 too low, because the positions of a block resemble each other
    beyond what their features say. At other rows it stays within 0.15 drafts (6%) of that product. Where engines
    verify adaptively, late positions have labels of confident drafts only, and the figure is too high for blocks
    verified whole.

    Args:
        k: draft positions.
        cells: of one workload, at the row's coefficients.

    Returns:
        0 to K; None when the first position has no labels. Positions behind the last one with labels add nothing.
    """
    return _chain(_shares(k, cells, cells.labels * cells.probability))


def _shares(k: int, cells: Cells, of_labels: Array) -> Array:
    """Per position [K] a sum over labels divided by their number; without labels 0, NaN at the first position."""
    place = cells.position.astype(np.intp)
    labels = np.bincount(place, weights=cells.labels, minlength=k)
    sums = np.bincount(place, weights=of_labels, minlength=k)
    share: Array = np.divide(sums, labels, out=np.zeros(k), where=labels > 0.0)
    if not labels[0] > 0.0:
        share[0] = np.nan
    return share


def _chain(shares: Array) -> float | None:
    found = float(np.cumprod(shares).sum())
    return None if np.isnan(found) else found


def _metrics(k: int, cells: Cells) -> Metrics:
    return Metrics(**metrics(cells), accepted_per_step=expected_accepted(k, cells))


def _positions(k: int, proposed: Cells, in_force: Cells) -> list[dict[str, float | None]]:
    place = in_force.position.astype(np.intp)
    n, y, after, before = (
        np.bincount(place, weights=weights, minlength=k)
        for weights in (
            in_force.labels,
            in_force.accepted,
            proposed.labels * proposed.probability,
            in_force.labels * in_force.probability,
        )
    )
    return [
        {
            "position": j,
            "labels": float(n[j]),
            "accepted": float(y[j] / n[j]) if n[j] > 0.0 else None,
            "proposed": float(after[j] / n[j]) if n[j] > 0.0 else None,
            "in_force": float(before[j] / n[j]) if n[j] > 0.0 else None,
        }
        for j in range(k)
    ]


def _word(found: Difference) -> Verdict:
    if abs(found.log_loss) <= max(WORSE_BY_NOISE * found.noise, IMMATERIAL_NATS):
        return Verdict.NO_DIFFERENCE
    return Verdict.WORSE if found.log_loss > 0.0 else Verdict.BETTER


def _message(word: Verdict, found: Difference, labels: float) -> str:
    size, noise = _nats(abs(found.log_loss)), _nats(found.noise)
    if word is Verdict.NO_DIFFERENCE:
        return f"no difference that {labels:,.0f} recent labels can tell ({size} nats per label, noise {noise})"
    return f"{size} nats per label {word.value} than what is in force (noise {noise}, {labels:,.0f} recent labels)"


def _nats(value: float) -> str:
    return f"{value:.3f}" if value >= 0.0005 else "below 0.001"


def _notes(proposed: Coefficients, in_force: Coefficients) -> list[str]:
    if proposed.request_variance == in_force.request_variance:
        return []
    return [
        f"request_variance {proposed.request_variance:g} against {in_force.request_variance:g} in force is not judged: "
        "the sketch does not know which labels belong to one request, so the request effect is left out on both sides"
    ]
