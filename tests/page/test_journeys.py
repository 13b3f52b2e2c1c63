"""What an operator does with nothing but the page."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect
from tests.page.support import REASON, SHIFTED, Tabs, Taught, picture


def workload_url(taught: Taught, key: str) -> str:
    """Where a workload is shown."""
    return f"{taught.url}/#/pairs/{taught.pair}/workloads/{quote(key, safe='')}"


def say_why(page: Page, reason: str, actor: str) -> None:
    """Fills in what every override needs."""
    form = page.locator("#override-form")
    form.get_by_label("Reason").fill(reason)
    form.get_by_label("Your name").fill(actor)


def test_find_the_miscalibrated_workload(taught: Taught, tabs: Tabs) -> None:
    """From the front page two clicks lead to the workload that is off; it is marked by a word, and sorted first."""
    page = tabs.open(taught.url).page
    lead = page.locator(".lead")
    expect(lead).to_contain_text(f"Miscalibrated in 1 pair: {SHIFTED}")
    picture(page, "pairs-1280-light")
    page.get_by_role("table").get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("SmolLM2")
    first = page.locator("#workload-table tbody tr").first
    expect(first).to_contain_text(SHIFTED)
    expect(first).to_contain_text("miscalibrated")
    expect(first).to_contain_text("anna: shifted by \u22120.80 in log-odds")
    expect(first).to_contain_text("by anna")
    expect(page.locator("#workload-table tbody tr").last).not_to_contain_text("miscalibrated")
    picture(page, "pair-1280-light")
    first.get_by_role("link", name=SHIFTED).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(SHIFTED)
    assert page.url == workload_url(taught, SHIFTED)


def test_since_when_what_changed_it_and_who(taught: Taught, tabs: Tabs) -> None:
    """The head of a workload answers the four questions, and leads to the evidence for each."""
    page = tabs.open(workload_url(taught, SHIFTED)).page
    answers = page.locator(".answers > div")
    expect(answers.nth(0)).to_contain_text("miscalibrated")
    expect(answers.nth(0)).to_contain_text("too pessimistic")
    expect(answers.nth(1)).to_contain_text("anna: shifted by \u22120.80 in log-odds")
    expect(answers.nth(2)).to_contain_text("anna: shifted by \u22120.80 in log-odds")
    expect(answers.nth(3)).to_contain_text(REASON)
    answers.nth(3).get_by_role("button").click()
    expect(page.locator("#audit-title")).to_be_focused()
    trail = page.locator("#audit-table tbody tr").last
    for text in ("anna", "operator", REASON, "learnt coefficients \u2192 shifted"):
        expect(trail).to_contain_text(text)
    expect(page.locator("#ece-chart .legend")).to_contain_text("O override")
    expect(page.locator("#history-table")).to_contain_text("refits on new evidence")
    expect(page.locator("canvas")).to_have_count(8)
    # What a picture shows is there as numbers as well.
    page.locator("#intercept-chart summary").click()
    numbers = page.locator("#intercept-chart details tbody tr")
    expect(numbers).to_have_count(len(taught.get(f"/workloads/{SHIFTED}")["coefficients"]["intercepts"]))
    expect(numbers.first).to_contain_text(re.compile(r"\(-?\d.* to .*\)"))
    page.locator("#intercept-chart summary").click()
    picture(page, "workload-1280-light")


def test_shift_with_a_preview(taught: Taught, tabs: Tabs) -> None:
    """A shift shows what it would do before anything is saved, and is then in force with reason and name."""
    key = "code:greedy"
    page = tabs.open(workload_url(taught, key)).page
    page.get_by_label("Shift in log-odds").fill("-1.5")
    expect(page.locator("#preview")).to_contain_text("worse")
    expect(page.locator("#preview")).to_contain_text("Nothing is saved yet")
    assert taught.override(key) is None
    picture(page, "preview-1280-light")
    page.get_by_role("button", name="Save override").click()
    # Nothing leaves without a reason, and the cursor is where it is missing.
    expect(page.get_by_label("Reason", exact=True)).to_be_focused()
    expect(page.get_by_text("Enter a reason.")).to_be_visible()
    assert taught.override(key) is None
    say_why(page, "too sure on the new model", "cleo")
    page.get_by_label("Ends").select_option("in 4 hours")
    page.get_by_role("button", name="Save override").click()
    expect(page.locator("#outcome")).to_contain_text("Saved as version")
    expect(page.locator("#override > p")).to_contain_text("shifted by \u22121.50 in log-odds by cleo")
    found = taught.override(key)
    assert found is not None
    assert (found["shift"], found["actor"], found["reason"]) == (-1.5, "cleo", "too sure on the new model")
    assert 0 < found["expires_ms"] - found["created_ms"] <= 4 * 3_600_000


def test_a_worse_pin_is_warned_of(taught: Taught, tabs: Tabs) -> None:
    """A pin begins with the row in force; a worse one is saved with a warning that says by how much."""
    key = "math:sampled"
    row = taught.get(f"/workloads/{key}")["coefficients"]
    page = tabs.open(workload_url(taught, key)).page
    page.get_by_label("Pin:").check()
    first = page.get_by_label("Intercept 0")
    expect(first).to_be_visible()
    assert float(first.input_value()) == pytest.approx(row["intercepts"][0], abs=1e-4)
    page.get_by_label("Intercept 0").fill("4")
    say_why(page, "a try", "cleo")
    page.get_by_role("button", name="Save override").click()
    expect(page.locator("#outcome")).to_contain_text("Warning:")
    expect(page.locator("#outcome")).to_contain_text(re.compile(r"log-loss worse by 0\.\d+"))
    found = taught.override(key)
    assert found is not None
    assert found["coefficients"]["intercepts"][0] == 4.0


def test_conflict(taught: Taught, tabs: Tabs) -> None:
    """Whoever comes second is told who was first and what they did, keeps the input, and decides."""
    key = "docs:sampled"
    page = tabs.open(workload_url(taught, key), allowed={412}).page
    page.get_by_label("Shift in log-odds").fill("0.25")
    say_why(page, "mine", "cleo")
    taught.put(key, kind="shift", shift=0.5, reason="I was first", actor="bea", expires_in_s=600)
    # It is shown as it happens, and the form stays as it was.
    expect(page.locator("#override > p")).to_contain_text("by bea")
    page.get_by_role("button", name="Save override").click()
    outcome = page.locator("#outcome")
    expect(outcome).to_contain_text("Somebody else changed this while you were writing")
    expect(outcome).to_contain_text("I was first")
    expect(outcome).to_be_focused()
    expect(page.get_by_label("Shift in log-odds")).to_have_value("0.25")
    expect(page.locator("#override-form").get_by_label("Reason", exact=True)).to_have_value("mine")
    found = taught.override(key)
    assert found is not None
    assert found["actor"] == "bea"
    picture(page, "conflict-1280-light")
    page.get_by_role("button", name="Save mine over it").click()
    expect(outcome).to_contain_text("Saved as version")
    found = taught.override(key)
    assert found is not None
    assert (found["actor"], found["shift"]) == ("cleo", 0.25)


def test_lift(taught: Taught, tabs: Tabs) -> None:
    """An override is lifted with a reason; what was learnt is in force again, and the trail tells who and why."""
    key = "code:sampled"
    taught.put(key, kind="freeze", reason="release day", actor="bea")
    page = tabs.open(workload_url(taught, key)).page
    expect(page.locator("#override > p")).to_contain_text("frozen as it was by bea")
    form = page.locator("#lift-form")
    form.get_by_label("Reason for lifting").fill("release is out")
    form.get_by_label("Your name").fill("cleo")
    form.get_by_role("button", name="Lift the override").click()
    expect(page.locator("#override > p")).to_have_text("No override: engines are served what was learnt.")
    expect(page.locator("#lift-form")).to_have_count(0)
    newest = page.locator("#audit-table tbody tr").first
    for text in ("lifted", "cleo", "release is out"):
        expect(newest).to_contain_text(text)
    assert taught.override(key) is None


def test_roll_back_from_history(taught: Taught, tabs: Tabs) -> None:
    """A version in the history is one click away from the form that brings it back and holds it."""
    key = "story:sampled"
    page = tabs.open(workload_url(taught, key)).page
    page.get_by_label("Show every refit by itself").check()
    row = page.locator("#history-table tbody tr").nth(2)
    version = row.locator("th").inner_text()
    row.get_by_role("button", name=re.compile("Roll back to")).click()
    expect(page.get_by_label("Version", exact=True)).to_have_value(version)
    say_why(page, "it was fine then", "cleo")
    page.get_by_role("button", name="Roll back", exact=True).click()
    expect(page.locator("#outcome")).to_contain_text("Saved as version")
    expect(page.locator("#override > p")).to_contain_text(f"rolled back to version {version} by cleo")
    expect(page.locator("#history-table")).to_contain_text(f"rolled back to version {version}")


def test_whole_pair(taught: Taught, tabs: Tabs) -> None:
    """A whole pair is frozen and lifted at the pair; a shift of it is previewed on every workload."""
    page = tabs.open(f"{taught.url}/#/pairs/{taught.pair}").page
    page.get_by_label("Shift in log-odds").fill("0.3")
    count = len(taught.get("")["workloads"])
    expect(page.locator("#preview tbody tr")).to_have_count(count)
    page.get_by_label("Freeze:").check()
    say_why(page, "maintenance", "cleo")
    page.get_by_role("button", name="Save override").click()
    expect(page.locator(".lead").first).to_contain_text("whole pair frozen as it was by cleo")
    page.locator("#lift-form").get_by_label("Reason for lifting").fill("done")
    page.locator("#lift-form").get_by_role("button").click()
    expect(page.locator("#override > p")).to_have_text("No override of the whole pair.")
    expect(page.locator("#engines")).to_contain_text("engine-1")
    expect(page.locator("#influence meter")).to_have_count(2)


def test_costs_that_the_reader_gives(taught: Taught, tabs: Tabs) -> None:
    """Where no engine has measured costs, the reader gives a ratio and is told the best K for it."""
    page = tabs.open(workload_url(taught, "math:greedy")).page
    advice = page.locator("#advice")
    expect(advice).to_contain_text("not known without costs")
    cost = page.get_by_label("Cost of drafting one token")
    cost.fill("-1")
    cost.press("Enter")
    expect(advice).to_contain_text("Enter a number from 0 to 10.")
    cost.fill("0.1")
    cost.press("Enter")
    expect(advice).to_contain_text("the ratio of the draft's cost that was asked for")
    expect(advice.locator("dl")).to_contain_text("Best K")
    expect(advice).not_to_contain_text("not known without costs")
    expect(advice.locator("canvas")).to_have_count(2)
