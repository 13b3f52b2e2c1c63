"""Guessing tokens: it gets slower and slower, and how long an answer takes says nothing about the guess."""

from __future__ import annotations

import hashlib
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.api.harness import RunningApi
from tests.api.tokens import TokenFile, bearer

from accord.api import Settings
from accord.api.auth import throttle
from accord.api.auth.auth import Auth, Refused
from accord.api.auth.keyring import Keyring
from accord.api.auth.roles import Role
from accord.api.auth.tokens import TokenSet, create, parse
from accord.learner.embedded import EmbeddedServer


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    """A file with a token of each role."""
    return TokenFile(tmp_path / "tokens")


@pytest.fixture
def guarded(server: EmbeddedServer, tokens: TokenFile) -> Iterator[RunningApi]:
    """An api that asks for them."""
    with RunningApi(Settings(redis_url=server.url, tokens_file=str(tokens.path))) as running:
        yield running


def test_guesses_get_slower_and_good_tokens_do_not(guarded: RunningApi, tokens: TokenFile) -> None:
    """After the first few wrong tokens each waits longer, up to the limit, while a good one from there is answered."""
    waits = []
    for number in range(throttle.FREE_FAILURES + 8):
        begin = time.monotonic()
        assert guarded.client.get("/v1/pairs", headers=bearer(f"accord_{number:043d}")).status_code == 401
        waits.append(time.monotonic() - begin)
    begin = time.monotonic()
    assert guarded.client.get("/v1/pairs", headers=bearer(tokens.tokens[Role.VIEWER])).status_code == 200
    good = time.monotonic() - begin
    first = statistics.median(waits[: throttle.FREE_FAILURES])
    shown = [f"{seconds * 1e3:.0f} ms" for seconds in (first, waits[-1], good)]
    print("wrong tokens: the first {}, the last {}; a good one {}".format(*shown))
    assert waits[-1] > throttle.LONGEST_WAIT_S / 2
    assert good < waits[-1] / 2


def test_timing_says_nothing(tmp_path: Path) -> None:
    """Wrong tokens that begin, or whose hashes begin, like a good one take as long to refuse as random ones."""
    made = [create(f"engine-{number}", Role.ENGINE) for number in range(300)]
    path = tmp_path / "tokens"
    path.write_text("".join(f"{entry.line()}\n" for _, entry in made))
    auth = Auth(Keyring(path))
    good = made[7][0]
    near = [good[:-1] + letter for letter in "abcdefghij" if letter != good[-1]]
    random = [create("x", Role.ENGINE)[0] for _ in near]
    # Which of a thousand wrong tokens has a hash that begins like a good one's: the most that a comparison could tell.
    digests = {entry.digest[:1] for _, entry in made[:40]}
    alike = [t for t in (create("x", Role.ENGINE)[0] for _ in range(400)) if _hash(t)[:1] in digests][: len(near)]
    kinds = {"near": near, "random": random, "hash alike": alike}
    taken: dict[str, list[float]] = {name: [] for name in kinds}
    for turn in range(400):
        for name, guesses in kinds.items():
            headers = [(b"authorization", f"Bearer {guesses[turn % len(guesses)]}".encode())]
            begin = time.perf_counter()
            assert auth.identify(headers) is Refused.UNKNOWN
            taken[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(times) for name, times in taken.items()}
    noise = max(float(np.subtract(*np.percentile(times, [75, 25]))) for times in taken.values())
    print(
        {name: f"{median * 1e6:.2f} us" for name, median in medians.items()}, f"half of all within {noise * 1e6:.2f} us"
    )
    assert max(medians.values()) - min(medians.values()) < max(noise, 0.05 * max(medians.values()))


def test_a_full_file_is_searched_whole() -> None:
    """The first token of a file and the last take the same comparisons, and none of them stops early."""
    made = [create(f"engine-{number}", Role.ENGINE)[1] for number in range(50)]
    found = parse("".join(f"{entry.line()}\n" for entry in made).encode())
    for entry in (made[0], made[-1]):
        assert TokenSet(found).find(entry.digest) == entry
    assert TokenSet(found).find(os.urandom(32)) is None


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
