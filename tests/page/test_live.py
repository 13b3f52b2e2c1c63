"""How the page stays up to date, and what it says when it cannot."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote, urlsplit

from playwright.sync_api import expect
from tests.api.tokens import TokenFile
from tests.page.support import SHIFTED, Tabs, Taught, another_api
from tests.proxy import TcpProxy
from tests.waiting import until

from accord.api.auth.roles import Role


def test_change_is_shown_and_typing_goes_on(taught: Taught, tabs: Tabs) -> None:
    """A change appears without a reload while focus, selection, scroll and what was typed stay as they are."""
    key = "chat:sampled"
    page = tabs.open(f"{taught.url}/#/pairs/{taught.pair}/workloads/{quote(key, safe='')}").page
    expect(page.locator("#connection-state")).to_contain_text("Live")
    expect(page.locator("canvas")).to_have_count(8)
    reason = page.locator("#override-form").get_by_label("Reason", exact=True)
    reason.fill("half a sent")
    page.evaluate("document.activeElement.setSelectionRange(2, 4); document.querySelector('canvas').mine = true")
    assert page.evaluate("scrollY") > 0
    place = reason.bounding_box()["y"]  # type: ignore[index]
    put = taught.put(key, kind="shift", shift=0.01, reason="live", actor="bea", expires_in_s=600)
    expect(page.locator(".facts").first).to_contain_text(f"{put['version']}")
    expect(page.locator("#override > p")).to_contain_text("by bea")
    expect(reason).to_be_focused()
    expect(reason).to_have_value("half a sent")
    assert page.evaluate("[document.activeElement.selectionStart, document.activeElement.selectionEnd]") == [2, 4]
    assert page.evaluate("document.querySelector('canvas').mine") is True
    # The browser moves it when something above grows, so that the field stays where it was on the screen.
    assert abs(reason.bounding_box()["y"] - place) < 40  # type: ignore[index]


def test_stale_store(taught: Taught, tabs: Tabs) -> None:
    """While the store is away the page says so and from when its figures are; when it is back, that goes away."""
    with (
        TcpProxy("127.0.0.1", urlsplit(taught.redis_url).port or 0) as proxy,
        another_api(taught, redis_url=f"redis://127.0.0.1:{proxy.port}/0") as api,
    ):
        watched = tabs.open(f"{api.url}/#/pairs/{taught.pair}", allowed={503})
        page = watched.page
        expect(page.locator("#connection-state")).to_contain_text("Live")
        expect(page.locator("#workload-table")).to_contain_text(SHIFTED)
        proxy.cut()
        expect(page.locator("#banner")).to_contain_text("Stale. What you see was read at", timeout=20_000)
        expect(page.locator("#connection-state")).to_contain_text("Reconnecting", timeout=20_000)
        # What was known is still there to be read.
        expect(page.locator("#workload-table")).to_contain_text(SHIFTED)
        proxy.restore()
        expect(page.locator("#banner")).to_be_empty(timeout=20_000)
        expect(page.locator("#connection-state")).to_contain_text("Live", timeout=20_000)
        page.goto("about:blank")


def test_server_away(taught: Taught, tabs: Tabs) -> None:
    """A server that is gone is named as the reason; what was read stays."""
    with another_api(taught) as api:
        watched = tabs.open(f"{api.url}/#/pairs/{taught.pair}")
        page = watched.page
        expect(page.locator("#connection-state")).to_contain_text("Live")
        expect(page.locator("#workload-table")).to_contain_text(SHIFTED)
        watched.offline = True
    expect(page.locator("#banner")).to_contain_text("the server cannot be reached", timeout=20_000)
    expect(page.locator("#connection")).to_contain_text(re.compile(r"Reconnecting[\s\S]*for \d+ s: the server"))
    expect(page.locator("#workload-table")).to_contain_text(SHIFTED)


def test_polling(taught: Taught, tabs: Tabs) -> None:
    """Without a free event stream the page asks every few seconds, and says so."""
    with another_api(taught, max_streams=0) as api:
        page = tabs.open(f"{api.url}/#/pairs/{taught.pair}", allowed={503}).page
        expect(page.locator("#connection-state")).to_contain_text("asking every 4 s")
        put = taught.put("math:greedy", kind="freeze", reason="poll", actor="bea", expires_in_s=600)
        expect(page.locator(".facts").first).to_contain_text(str(put["version"]), timeout=15_000)
        page.goto("about:blank")


def test_sign_in(taught: Taught, tabs: Tabs, tmp_path: Path) -> None:
    """The token is asked for and stays in the tab; a viewer sees why forms are closed."""
    file = TokenFile(tmp_path / "tokens")
    with another_api(taught, tokens_file=str(file.path)) as api:
        url = f"{api.url}/#/pairs/{taught.pair}/workloads/{quote(SHIFTED, safe='')}"
        page = tabs.open(url, allowed={401}).page
        field = page.get_by_label("Token")
        expect(field).to_be_focused()
        expect(page.locator("main")).to_be_hidden()
        field.fill("nobody's")
        field.press("Enter")
        expect(page.get_by_text("The server does not accept this token.")).to_be_visible()
        page.get_by_label("Token").fill(file.tokens[Role.VIEWER])
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", level=1)).to_have_text(SHIFTED)
        expect(page.locator("#session")).to_contain_text("viewer-1, viewer")
        expect(page.locator("#connection-state")).to_contain_text("Live")
        expect(page.locator("#override-form")).to_contain_text("only an operator may change what engines are served")
        expect(page.get_by_role("button", name="Save override")).to_be_disabled()
        kept = page.evaluate("[sessionStorage.getItem('accord-token'), JSON.stringify(localStorage), document.cookie]")
        assert kept == [file.tokens[Role.VIEWER], "{}", ""]
        page.reload()
        expect(page.locator("#session")).to_contain_text("viewer-1, viewer")
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        page.get_by_label("Token").fill(file.tokens[Role.OPERATOR])
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("#session")).to_contain_text("operator-1, operator")
        expect(page.get_by_role("button", name="Save override")).to_be_enabled()
        page.goto("about:blank")


def test_token_that_is_taken_away(taught: Taught, tabs: Tabs, tmp_path: Path) -> None:
    """Whoever loses the token while the page is open is asked for another one."""
    file = TokenFile(tmp_path / "tokens")
    with another_api(taught, tokens_file=str(file.path)) as api:
        page = tabs.open(api.url, allowed={401}).page
        page.get_by_label("Token").fill(file.tokens[Role.VIEWER])
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("#connection-state")).to_contain_text("Live")
        file.lines = [line for line in file.lines if "viewer-1" not in line]
        file.write()
        expect(page.get_by_text("The server does not accept this token.")).to_be_visible(timeout=20_000)
        page.goto("about:blank")


def test_hidden_tab_holds_no_stream(taught: Taught, tabs: Tabs) -> None:
    """A tab that nobody looks at gives its event stream back, and takes one again when it is looked at."""
    with another_api(taught) as api:
        page = tabs.open(api.url).page
        expect(page.locator("#connection-state")).to_contain_text("Live")
        assert api.services.streams.count == 1
        for state, streams in (("hidden", 0), ("visible", 1)):
            page.evaluate(
                "state => { Object.defineProperty(document, 'visibilityState', { value: state, configurable: true });"
                " document.dispatchEvent(new Event('visibilitychange')); }",
                state,
            )
            until(lambda wanted=streams: api.services.streams.count == wanted)  # type: ignore[misc]
        page.goto("about:blank")
