"""Whether a served table may be put in force."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from accord.learner.coefficients import MAX_TABLE_BYTES, CoefficientTable
from accord.learner.errors import InvalidValue, Reason, Refusal


@dataclass(frozen=True)
class Judge:
    """What an engine knows of the pair, and hence of every table that is meant for it."""

    pair: str
    k: int
    knots: tuple[float, ...]

    def decode(self, body: bytes) -> CoefficientTable:
        """The table of a response body.

        Raises:
            Refusal: with the kind of fault.
        """
        try:
            table = CoefficientTable.from_json(body)
        except Refusal:
            raise
        except Exception as error:  # noqa: BLE001  # whatever a lying server provokes is a refusal, not a crash
            raise Refusal(Reason.SCHEMA, f"{type(error).__name__}: {str(error)[:120]}") from None
        if table.pair != self.pair:
            raise Refusal(Reason.WRONG_PAIR, f"a table of {table.pair}, this engine serves {self.pair}")
        if table.k != self.k:
            raise Refusal(Reason.SHAPE, f"K = {table.k}, this engine drafts {self.k}")
        if table.knots != self.knots:
            raise Refusal(Reason.KNOTS, f"knots {table.knots}, this engine has {self.knots}")
        return table

    def load(self, field: str, path: str) -> CoefficientTable:
        """The table of a file.

        Raises:
            InvalidValue: naming the field, for a file that cannot be read or a table that would be refused.
        """
        try:
            with Path(path).open("rb") as file:
                return self.decode(file.read(MAX_TABLE_BYTES + 1))
        except OSError as error:
            raise InvalidValue(field, path, error.strerror or "cannot be read") from None
        except Refusal as refusal:
            raise InvalidValue(field, path, str(refusal), refusal.reason) from None

    def supersedes(self, table: CoefficientTable, last: CoefficientTable | None) -> bool:
        """Whether a served table replaces the last one the service gave; False when it brings nothing new.

        Version 0 is nobody's publication and replaces nothing. A lower version that was published later is a service
        that was restored from a backup or lost its data: it is believed.

        Raises:
            Refusal: stale, for a version from before the one in force.
        """
        if table.version == 0:
            return False
        if last is None or table.version > last.version or table.published_ms > last.published_ms:
            return True
        if table.version == last.version and table.published_ms == last.published_ms:
            return False
        detail = f"version {table.version} of {table.published_ms} ms"
        raise Refusal(Reason.STALE, f"{detail}, in force {last.version} of {last.published_ms} ms")
