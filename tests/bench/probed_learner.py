"""A real learner process that also says when it folded and when it committed."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from accord.learner.drift import check_river
from accord.learner.pair_learner import Entry, PairLearner, Published
from accord.learner.service.loop import LearnerService
from accord.learner.service.settings import LearnerSettings
from accord.learner.store import Commit, Lease, Retention, Store, connect


def probe(out: Path) -> None:
    """Runs a learner whose folds and commits of every version are written to a file, one JSON line each."""
    folded: dict[tuple[str, int], float] = {}
    advance, commit = PairLearner.advance, Store.commit
    file = out.open("w", encoding="utf-8")

    def timed_advance(self: PairLearner, entries: Sequence[Entry], closed_tick: int) -> list[Published]:
        published = advance(self, entries, closed_tick)
        for item in published:
            folded[(item.table.pair, item.table.version)] = time.time()
        return published

    def timed_commit(self: Store, lease: Lease, step: Commit, *retention: Retention) -> None:
        commit(self, lease, step, *retention)
        now = time.time()
        for item in step.publications:
            line: dict[str, Any] = {"pair": lease.pair_id, "version": item.version, "watermark": step.watermark}
            line |= {"folded": folded.pop((lease.pair_id, item.version)), "committed": now}
            file.write(json.dumps(line) + "\n")
            file.flush()

    PairLearner.advance = timed_advance  # type: ignore[method-assign]
    Store.commit = timed_commit  # type: ignore[method-assign]
    check_river()
    settings = LearnerSettings.from_environment()
    LearnerService(settings, Store(connect(settings.redis_url, role="learner"))).run()


if __name__ == "__main__":
    probe(Path(sys.argv[1]))
