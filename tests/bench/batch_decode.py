"""Decoding the rounds of a tick together, against one by one: the same bytes in turns, CPU time."""

from __future__ import annotations

import time

from tests.bench.rounds import KNOTS, Rounds, load_note

from accord.learner.wire import Expected, decode
from accord.learner.wire_batch import decode_many


def main(rounds: int = 800, turns: int = 5) -> dict[str, float]:
    """Prints and returns how many times faster a batch is, for plain rounds and for those with a sketch."""
    fleet = Rounds(engines=64)
    expected = Expected(fleet.pair.id, fleet.pair.k, KNOTS)
    payloads = list(fleet.take(2 * rounds))
    found = {}
    for kind, first in (("plain", 0), ("with a sketch", 1)):
        chosen = [payload for payload in payloads if payload[0] == first][:rounds]
        together, alone = [], []
        for _ in range(turns):
            start = time.process_time()
            decode_many(chosen, expected)
            middle = time.process_time()
            for payload in chosen:
                decode(payload, expected)
            together.append(middle - start)
            alone.append(time.process_time() - middle)
        ours, theirs = (min(times) / len(chosen) * 1e6 for times in (together, alone))
        found[kind] = theirs / ours
        print(f"  {kind}: {ours:.0f} us of CPU a round together, {theirs:.0f} alone: {theirs / ours:.1f} times")
    print(f"  {load_note()}")
    return found


if __name__ == "__main__":
    main()
