"""Short forms of the benches, with floors far below what they show: a slip by a factor is found, a busy machine is not.

No absolute times: ratios, sizes and counts only.
"""

from __future__ import annotations

from tests.bench import (
    agent_cost,
    api_ratio,
    batch_decode,
    fleet_simulation,
    latency,
    learner_throughput,
    long_polls,
    redis_memory,
    scale_out,
)


def test_rounds_of_a_tick_are_decoded_faster_together() -> None:
    """A batch of rounds takes less than half the CPU of the same rounds one by one."""
    assert batch_decode.main(rounds=200, turns=3)["plain"] > 2.0


def test_the_learner_keeps_its_share_of_the_bare_drain() -> None:
    """From stream to committed coefficients costs at most so many times what reading the entries costs."""
    found = learner_throughput.main(entries=200, turns=1, per_tick=(8, 100))
    assert found[8] > 0.0003
    assert found[100] > 0.0008


def test_a_plain_poll_costs_little_more_than_a_bare_route() -> None:
    """For 200 and 304, with and without a token, the api needs less than 1.6 times the bare route's CPU."""
    found = api_ratio.main(rounds=3, requests=300)
    assert len(found) == 4
    assert min(found.values()) > 0.625


def test_every_long_poll_is_answered_and_small() -> None:
    """All polls of a process get the new table after one commit."""
    found = long_polls.main(polls=500, turns=2)
    assert found["answered"] == 1.0
    assert found["bytes"] < 100 << 10


def test_the_agent_lands_every_round() -> None:
    """At 100 rounds a second every round lands, and takes not ten times the bytes of its information."""
    found = agent_cost.main(seconds=3.0)
    assert found["landed"] == 1.0
    assert found["ratio"] < 10.0


def test_redis_stays_bounded_without_a_learner() -> None:
    """The stream of a pair that nobody learns ends at its cap, and a workload's state has a size."""
    found = redis_memory.main(hour=90, max_entries=1_000)
    assert 0.9 < found["stopped_over_cap"] < 1.2
    assert found["most_over_end"] < 1.3
    assert found["state_workload"] < 40_000


def test_a_simulated_fleet_is_learnt_whole() -> None:
    """Every round of every engine is learnt, each engine under its own name."""
    found = fleet_simulation.simulate(engines=100, round_s=10.0, seconds=3.0)
    assert found["learnt"] == 1.0


def test_two_learners_share_the_pairs_and_learn_everything() -> None:
    """A backlog of several pairs is learnt by two learners, each with half of the pairs."""
    assert scale_out.main(pairs=2, rounds=96, turns=1)["by_cpu"] > 1.2


def test_every_leg_from_evidence_to_coefficients_is_timed() -> None:
    """Of each publication but the first it is known when it was put, landed, folded, committed, answered and held."""
    found = latency.main(rounds=8, pairs=1)
    assert len(found) == len(latency.LEGS) + 1
    assert all(p50 >= 0.0 for p50, _ in found.values())
