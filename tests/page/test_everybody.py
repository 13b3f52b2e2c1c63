"""The page for whoever reads it: any width, any theme, no mouse, no trust in names."""

from __future__ import annotations

import json
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Page, expect
from tests.api.harness import RunningApi
from tests.page.support import SHIFTED, Tabs, Taught, picture

from accord.api import Settings
from accord.learner.embedded import EmbeddedServer
from accord.learner.pair import DraftSampling, Method, Pair
from accord.learner.store import Store, connect
from accord.learner.store.keys import PairKeys

HOSTILE = "<img src=x onerror=window.broken=1>"

# Of every visible text its contrast with what is behind it (WCAG 2), and what is below 4.5.
CONTRAST = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const lum = ([r, g, b]) => [r, g, b].map(linear)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const c = parse(getComputedStyle(at).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const low = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility()) continue;
    if (node.closest(":disabled, .unseen, script")) continue;
    const [a, b] = [lum(parse(getComputedStyle(node).color)), lum(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push(`${walker.currentNode.data.slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return low;
}"""

# What the focus is on, when that is something to press.
FOCUSED = "document.activeElement.matches('a, button') ? document.activeElement.textContent : ''"

# Charts follow a new width at the next frame.
REDRAWN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50))))"

# What a screen reader could not name or find its way in.
UNNAMED = """() => {
  const found = [];
  for (const input of document.querySelectorAll("input, select")) {
    if (!input.labels?.length && !input.getAttribute("aria-label")) found.push(input.outerHTML);
  }
  for (const node of document.querySelectorAll("button, a, [role=img], [role=region]")) {
    if (!(node.textContent.trim() || node.getAttribute("aria-label"))) found.push(node.outerHTML);
  }
  for (const table of document.querySelectorAll(".scroll table")) {
    if (!table.querySelector("thead th[scope=col]") || !table.caption) found.push(`table ${table.id}`);
  }
  const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
  found.push(...ids.filter((id, i) => ids.indexOf(id) !== i).map((id) => `twice ${id}`));
  const levels = [...document.querySelectorAll("h1, h2, h3")].filter((node) => node.checkVisibility());
  if (levels.filter((node) => node.tagName === "H1").length !== 1) found.push("not one h1");
  return found;
}"""


def views(taught: Taught) -> dict[str, str]:
    """Every view's address."""
    pair = f"{taught.url}/#/pairs/{taught.pair}"
    return {"pairs": taught.url, "pair": pair, "workload": f"{pair}/workloads/{quote(SHIFTED, safe='')}"}


def settled(page: Page, view: str) -> None:
    """Returns once a view shows everything."""
    expect(page.get_by_text(SHIFTED).first).to_be_visible()
    expect(page.locator("main")).not_to_contain_text("Reading ")
    if view == "workload":
        expect(page.locator("canvas")).to_have_count(8)


@pytest.mark.parametrize("view", ["pairs", "pair", "workload"])
def test_readable(taught: Taught, tabs: Tabs, view: str) -> None:
    """At either width, in either theme: no sideways scrolling of the page, enough contrast, everything has a name."""
    page = tabs.open(views(taught)[view]).page
    settled(page, view)
    assert page.evaluate(UNNAMED) == []
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.evaluate(REDRAWN)
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, (width, scheme)
            assert page.evaluate(CONTRAST) == [], (width, scheme)
            picture(page, f"{view}-{width}-{scheme}")


def test_theme(taught: Taught, tabs: Tabs) -> None:
    """The theme follows the system until it is chosen, and the choice outlives a reload; charts follow."""
    page = tabs.open(views(taught)["workload"], scheme="dark").page
    settled(page, "workload")
    colour = "getComputedStyle(document.body.parentElement).backgroundColor"
    dark, dark_chart = page.evaluate(colour), page.locator("canvas").first.screenshot()
    for name in ("light", "dark", "system", "light"):
        page.locator("#theme").click()
        expect(page.locator("#theme")).to_have_text(f"Theme: {name}")
        assert (page.evaluate(colour) == dark) is (name != "light")
    assert page.locator("canvas").first.screenshot() != dark_chart
    page.reload()
    expect(page.locator("#theme")).to_have_text("Theme: light")
    assert page.evaluate(colour) != dark


def test_keyboard_only(taught: Taught, tabs: Tabs) -> None:
    """Without a mouse: skip to the content, sort, open a pair and a workload, and reach the form; focus is visible."""
    page = tabs.open(taught.url).page
    settled(page, "pairs")

    def tab_to(text: str, limit: int = 60) -> None:
        for _ in range(limit):
            page.keyboard.press("Tab")
            focused = page.evaluate(FOCUSED)
            if text in focused:
                assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
                return
        raise AssertionError(f"{text!r} cannot be reached")

    page.keyboard.press("Tab")
    expect(page.locator("#skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    tab_to("Labels")
    page.keyboard.press("Enter")
    expect(page.locator("#pairs th", has_text="Labels")).to_have_attribute("aria-sort", "descending")
    tab_to("SmolLM2")
    page.keyboard.press("Enter")
    expect(page.locator("#workload-table")).to_be_visible()
    expect(page.locator("main")).to_be_focused()
    tab_to(SHIFTED)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(SHIFTED)
    settled(page, "workload")
    tab_to("audit trail")
    page.keyboard.press("Enter")
    expect(page.locator("#audit-title")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    page.locator("#override-form input[name=kind]").first.focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_label("Pin:")).to_be_checked()
    expect(page.get_by_label("Intercept 0")).to_be_visible()


def test_sorting_keeps_over_refreshes(taught: Taught, tabs: Tabs) -> None:
    """A column is sorted either way, and stays so when new figures come."""
    page = tabs.open(views(taught)["pair"]).page
    settled(page, "pair")
    page.get_by_role("button", name="Labels", exact=True).click()

    def labels() -> list[int]:
        cells = page.locator('#workload-table td[data-name="Labels"]').all_inner_texts()
        return [int(cell.replace(",", "")) for cell in cells]

    assert labels() == sorted(labels(), reverse=True)
    page.get_by_role("button", name="Labels", exact=True).click()
    assert labels() == sorted(labels())
    put = taught.put("math:greedy", kind="freeze", reason="sort", actor="bea", expires_in_s=600)
    expect(page.locator(".facts").first).to_contain_text(str(put["version"]))
    assert labels() == sorted(labels())
    expect(page.locator("#workload-table th", has_text="Labels")).to_have_attribute("aria-sort", "ascending")


def test_times(taught: Taught, tabs: Tabs) -> None:
    """Times are local, and their title is UTC."""
    page = tabs.open(views(taught)["pair"]).page
    settled(page, "pair")
    for stamp in page.locator("time").all()[:20]:
        title, iso = stamp.get_attribute("title") or "", stamp.get_attribute("datetime") or ""
        assert title == iso.replace("T", " ").replace("Z", "") + " UTC"


def test_addresses_that_are_none(taught: Taught, tabs: Tabs) -> None:
    """Addresses that name nothing, or cannot be decoded, say so in words."""
    page = tabs.open(f"{taught.url}/#/nonsense/%E0%A4%A", allowed={404, 422}).page
    expect(page.get_by_role("heading", level=1)).to_have_text("No such view")
    page.goto(f"{taught.url}/#/pairs/nobody")
    expect(page.get_by_role("heading", level=1)).to_have_text("No such pair")
    page.goto(f"{taught.url}/#/pairs/{taught.pair}/workloads/never%3Awarm")
    expect(page.locator(".lead")).to_contain_text("has not seen this workload")


def test_nothing_yet(server: EmbeddedServer, store: Store, tabs: Tabs) -> None:
    """Without pairs the page says how an engine is connected."""
    with RunningApi(Settings(redis_url=server.url)) as api:
        page = tabs.open(api.url).page
        expect(page.locator("main")).to_contain_text("No engine has registered a pair yet")
        expect(page.locator("main")).to_contain_text(f"ACCORD_API_URL={api.url}")
        page.goto("about:blank")


def test_hostile_names(tabs: Tabs) -> None:
    """Names that are markup are shown as text wherever they appear, and nothing in them runs."""
    with EmbeddedServer() as own, Store(connect(own.url, role="test")) as store:
        pair = Pair(HOSTILE, '"><script>window.broken=1</script>', Method.EAGLE, DraftSampling.GREEDY, 2)
        store.register(pair, (0.0,))
        status = {"state": HOSTILE, "reason": HOSTILE, "nack": {"reason": HOSTILE, "detail": HOSTILE}, "version": "x",
                  "time_ms": 10**300, "labels": {"sent": HOSTILE}, "costs": {"draft": HOSTILE}}  # fmt: skip
        store.client.hset(PairKeys(pair.id).engines, HOSTILE, json.dumps(status))
        store.client.hset(PairKeys(pair.id).engines, "numbers", json.dumps({"version": -1, "labels": 3, "costs": 7}))
        turned = {"state": "local", "reason": "a\u202eb\x9bc", "time_ms": 1}
        store.client.hset(PairKeys(pair.id).engines, "turned", json.dumps(turned))
        with RunningApi(Settings(redis_url=own.url)) as api:
            put = {"kind": "freeze", "reason": HOSTILE, "actor": HOSTILE}
            url = f"{api.url}/v1/pairs/{pair.id}/workloads/code:warm/override"
            assert httpx.put(url, json=put, headers={"If-Match": "*"}, timeout=20.0).status_code == 200
            page = tabs.open(api.url).page
            expect(page.get_by_role("link", name=HOSTILE)).to_be_visible()
            page.goto(f"{api.url}/#/pairs/{pair.id}")
            expect(page.get_by_role("heading", level=1)).to_contain_text(HOSTILE)
            expect(page.locator("#engine-table")).to_contain_text(HOSTILE)
            expect(page.locator("#engine-table")).to_contain_text("a\ufffdb\ufffdc")
            expect(page.locator("#audit-table")).to_contain_text(HOSTILE)
            expect(page.locator("#history-table")).to_contain_text(HOSTILE)
            page.goto(f"{api.url}/#/pairs/{pair.id}/workloads/code%3Awarm")
            expect(page.locator("#override > p")).to_contain_text(HOSTILE)
            # A request would lose the dots, and show and change the whole pair as if it were a workload.
            page.goto(f"{api.url}/#/pairs/{pair.id}/workloads/..")
            expect(page.locator("#override")).to_have_count(0)
            expect(page.locator("main")).to_contain_text("No such view")
            assert page.evaluate("window.broken") is None
            assert page.locator("img").count() == 0
            page.goto("about:blank")
