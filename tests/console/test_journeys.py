"""Journeys through the console in a real browser, against a real service over the demo shop."""

import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from tests.fixtures.browser import Browser, open_browser
from tests.fixtures.process import Running, start

pytestmark = pytest.mark.browser

CTRL_ENTER = "\ue009\ue007\ue000"
MARKUP = "<img src=x onerror=alert(1)>"
COUNTRIES = "SELECT country, COUNT(*) AS n FROM customers GROUP BY country"
SLOW_STEP_MS = 12_000  # longer than the page waits for an answer at once


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journeys")


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Running]:
    running = start(folder)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def driven() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture
def browser(driven: Browser) -> Iterator[Browser]:
    """One window for all; whatever a journey did, the browser has nothing to complain about but refusals."""
    driven.resize(1280, 900)
    driven.dark(False)
    driven.complaints()
    yield driven
    unexpected = [each for each in driven.complaints() if "Failed to load resource" not in each]
    assert not unexpected


def sign_in(browser: Browser, service: Running, role: str, page: str = "") -> None:
    browser.go(service.url + "/healthz")
    browser.script("sessionStorage.clear()")
    browser.go(f"{service.url}/{page}")
    browser.fill("#key", service.keys[role])
    browser.click("#sign-in button")
    browser.shows("#who-text", role)
    if role != "viewer" and not page:
        browser.shows("#estimate", "Would cost")  # of the question that the page begins with


def ask(browser: Browser, sql: str, epsilon: str = "") -> None:
    browser.fill("#sql", sql)
    browser.choose("#pay", "epsilon" if epsilon else "default")
    if epsilon:
        browser.fill("#pay-amount", epsilon)
    browser.press("#sql", CTRL_ENTER)


def spent(service: Running) -> Decimal:
    return Decimal(service.ask("GET", "/v1/datasets/shop/budget").json()["spent"]["epsilon"])


def test_a_wrong_key_is_refused_in_words_and_not_kept(browser: Browser, service: Running) -> None:
    browser.go(service.url)
    browser.script("sessionStorage.clear()")
    browser.go(service.url)
    browser.fill("#key", "ht_nobody_nothing")
    browser.click("#sign-in button")
    browser.shows("#sign-in-problem", "A valid key is needed")
    assert browser.script("return sessionStorage.length") == 0
    assert browser.script("return document.querySelector('#key').value") == ""


def test_a_question_is_priced_while_typed_then_answered_with_intervals_and_a_chart(
    browser: Browser, service: Running
) -> None:
    sign_in(browser, service, "analyst")
    browser.fill("#sql", COUNTRIES)
    browser.choose("#pay", "epsilon")
    browser.fill("#pay-amount", "0.2")
    browser.shows("#estimate", "ε 0.2")
    assert "± 15" in browser.shows("#estimate", "±")
    assert "s, whatever the data holds" in browser.shows("#estimate", "Takes ")
    before = spent(service)
    browser.press("#sql", CTRL_ENTER)
    answer = browser.shows("#answer", "Cost ε 0.2")
    assert answer.count("± 15") == 8
    browser.find("#answer .chart svg")
    assert browser.count("#answer .chart .bar") == browser.count("#answer .chart .whisker") == 8
    browser.shows("#asking", "Answered: 8 rows.")
    browser.shows("#budget", "ε 9.6")
    assert spent(service) == before + Decimal("0.2")
    browser.shows("#history-list", COUNTRIES)


def test_the_same_again_is_marked_as_a_free_replay(browser: Browser, service: Running) -> None:
    sign_in(browser, service, "analyst")
    ask(browser, COUNTRIES + " ORDER BY n DESC", "0.2")
    browser.shows("#asking", "Answered: 8 rows.")
    before = spent(service)
    ask(browser, COUNTRIES + " ORDER BY n", "0.2")
    browser.shows("#answer", "free replay")
    assert spent(service) == before


def test_dates_are_drawn_as_a_line_and_the_answer_can_be_saved(
    browser: Browser, service: Running, tmp_path: Path
) -> None:
    browser.download_into(tmp_path)
    sign_in(browser, service, "analyst")
    ask(browser, "SELECT date_trunc('month', signup_date) AS month, COUNT(*) AS n FROM customers GROUP BY 1 ORDER BY 1")
    browser.find("#answer .chart .line")
    assert browser.count("#answer .chart .dot") > 20
    browser.click("#answer p.row button")
    [saved] = browser.wait("a CSV file", lambda: list(tmp_path.glob("*.csv")))
    assert saved.read_text().startswith("month,n,")


def test_a_refusal_says_where_and_what_instead_and_costs_nothing(browser: Browser, service: Running) -> None:
    sign_in(browser, service, "analyst")
    before = spent(service)
    browser.fill("#sql", "SELECT COUNT(*) AS n\nFROM custmers")
    said = browser.shows("#estimate", "Line 2, column 6")
    assert "Instead" in said and "customers" in said
    browser.click("#estimate .problem button")
    assert browser.script("return document.querySelector('#sql').selectionStart") == len("SELECT COUNT(*) AS n\nFROM ")
    browser.click("#ask")
    browser.shows("#answer", "Not answered")
    assert spent(service) == before


def test_a_payment_that_is_none_is_refused_with_a_remedy(browser: Browser, service: Running) -> None:
    sign_in(browser, service, "analyst")
    browser.choose("#pay", "epsilon")
    browser.fill("#pay-amount", "5")
    browser.shows("#estimate", "That amount of privacy can not be spent")
    browser.shows("#estimate", "Instead")


def test_accuracy_and_bounds_can_be_asked_for(browser: Browser, service: Running) -> None:
    sign_in(browser, service, "analyst")
    browser.fill("#sql", "SELECT SUM(amount) AS turnover FROM orders")
    browser.choose("#pay", "accuracy")
    browser.shows("#estimate", "half_width")
    browser.fill("#pay-output", "turnover")
    browser.fill("#pay-amount", "60000")
    browser.shows("#estimate", "That accuracy needs")
    loose = browser.text("#estimate strong")
    browser.click("details.more > summary")
    browser.fill("#rows-per-unit", "5")
    browser.wait("a lower price", lambda: browser.text("#estimate strong") not in (loose, ""))


def test_markup_in_names_is_shown_and_never_run(browser: Browser, service: Running) -> None:
    """Through an alias in answers, histories and panels, and through a line that a refusal repeats."""
    sly = f'SELECT country, COUNT(*) AS "{MARKUP}" FROM customers GROUP BY country'
    question = {"dataset": "shop", "sql": sly, "epsilon": "0.1", "budget": "0.1"}
    assert service.ask("PUT", "/v1/panels/sly", json=question).status_code == 200
    sign_in(browser, service, "analyst")
    ask(browser, sly)
    browser.shows("#answer thead", MARKUP)
    browser.shows("#history-list", MARKUP)
    browser.fill("#sql", f'SELECT "{MARKUP}" FROM customers')
    browser.shows("#estimate pre", MARKUP)
    service.ask("POST", "/v1/panels/sly/refresh")
    browser.click('nav a[href="#panels"]')
    browser.click("#panels details summary")
    browser.shows("#panels thead", MARKUP)
    service.ask("DELETE", "/v1/panels/sly")
    assert browser.count("main img") == 0
    # An open alert would have made every step above fail; and the policy forbids markup from text at all.
    attempt = "try { document.body.innerHTML = '<i>x</i>'; return 'done' } catch (error) { return error.name }"
    assert browser.script(attempt) == "TypeError"
    browser.complaints()  # of that attempt


def test_a_question_is_kept_as_a_panel_and_a_viewer_sees_it(browser: Browser, service: Running) -> None:
    sign_in(browser, service, "analyst")
    ask(browser, COUNTRIES, "0.2")
    browser.shows("#answer", "Keep as a panel")
    browser.click("#answer .row summary")
    browser.fill("#answer form input[required]", "by_country")
    browser.fill("#answer form label:nth-child(2) input", "Customers by country")
    browser.fill("#answer form label:nth-child(4) input", "1")
    browser.click("#answer form button")
    browser.shows("#answer", "Kept.")
    browser.wait("a refresh", lambda: service.ask("GET", "/v1/panels/by_country").json().get("rows"))
    sign_in(browser, service, "viewer")
    said = browser.shows("#panels", "Customers by country")
    assert "Refreshed" in said and "Next refresh" in said and "Runs out on" in said
    browser.find("#panels .chart svg")
    assert browser.count("#panels .chart .bar") == 8
    assert browser.text("#nav") == "Panels"
    assert browser.count("#panels button") == 0


def test_an_admin_makes_a_key_that_works_and_revokes_it(browser: Browser, service: Running) -> None:
    sign_in(browser, service, "admin", "#admin")
    browser.click("#new-key > summary")
    browser.fill("#key-name", "for the board")
    browser.choose("#key-role", "viewer")
    browser.click("#key-for-shop")
    browser.click("#new-key button")
    secret = browser.shows(".made .secret", "ht_")
    key = {"Authorization": f"Bearer {secret}"}
    assert service.ask("GET", "/v1/datasets", headers=key).json()[0]["name"] == "shop"
    row = f'//tr[contains(., "{secret.split("_")[1]}")]//button'
    browser.click_path(row)
    browser.click_path(f'{row}[contains(., "Really revoke")]')
    browser.wait("a revoked key", lambda: service.ask("GET", "/v1/datasets", headers=key).status_code == 401)
    browser.wait("no secret", lambda: browser.count(".secret") == 0)


def test_an_admin_sees_budgets_imports_and_books_that_hold(browser: Browser, service: Running) -> None:
    sign_in(browser, service, "admin", "#admin")
    browser.shows("#admin", "ceiling ε 10")
    browser.shows("#admin", "shop.orders done")
    browser.shows("#admin", "key.create")
    browser.click("#verify")
    browser.shows("#admin", "holds")
    browser.click(".dataset details summary")
    browser.fill(".dataset form label:nth-child(1) input", "20")
    browser.fill(".dataset form label:nth-child(3) input", "more")
    browser.click(".dataset form button")
    browser.shows(".dataset", "the ceiling is epsilon 10")


def test_an_admin_rations_a_key_and_its_owner_sees_it(browser: Browser, service: Running) -> None:
    prefix = service.keys["analyst"].split("_")[1]
    sign_in(browser, service, "admin", "#admin")
    browser.click_path('//summary[.="Ration a key"]')
    browser.fill('input[placeholder="its prefix"]', prefix)
    browser.fill('input[placeholder="none: no ration"]', "0.5")
    browser.click_path('//button[.="Ration"]')
    browser.wait("a ration", lambda: service.ask("GET", "/v1/datasets/shop/budget").json()["quota"]["share"] == "0.5")
    sign_in(browser, service, "analyst")
    browser.shows("#budget", "Your ration")


def test_signing_out_leaves_nothing_behind(browser: Browser, service: Running) -> None:
    sign_in(browser, service, "analyst")
    browser.shows("#estimate", "Would cost")
    browser.click("#sign-out")
    browser.find("#key")
    assert browser.script("return sessionStorage.length") == 0
    assert (
        browser.script("return document.querySelector('#answer').hidden && document.querySelector('#sql').value") == ""
    )


def test_a_key_that_is_revoked_meanwhile_ends_the_visit_in_words(browser: Browser, service: Running) -> None:
    wanted = {"name": "short visit", "role": "analyst", "datasets": ["shop"]}
    made = service.ask("POST", "/v1/keys", "admin", json=wanted).json()
    service.keys["guest"] = made["key"]
    browser.go(service.url)
    browser.script("sessionStorage.clear()")
    browser.go(service.url)
    browser.fill("#key", made["key"])
    browser.click("#sign-in button")
    browser.shows("#estimate", "Would cost")
    service.ask("DELETE", f"/v1/keys/{made['prefix']}", "admin")
    browser.click("#ask")
    browser.shows("#sign-in-problem", "A valid key is needed")
    assert browser.script("return sessionStorage.length") == 0


@pytest.mark.parametrize("width", [380, 1280])
def test_no_page_is_wider_than_its_window(browser: Browser, service: Running, width: int) -> None:
    browser.resize(width, 800)
    sign_in(browser, service, "admin")
    ask(browser, COUNTRIES, "0.2")
    browser.find("#answer .chart svg")
    for page, sign in (("ask", "Answer"), ("panels", "Panels"), ("admin", "Admin acts")):
        if page != "ask":
            browser.click(f'nav a[href="#{page}"]')
        browser.shows(f"#page-{page}", sign)
        wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert browser.script(wide) <= 0, page


def test_an_answer_that_takes_long_is_followed(browser: Browser, service: Running, folder: Path) -> None:
    """Last, because it starts the same shop once more, with a clock that answers after twelve seconds."""
    service.stop()
    slow = start(folder, keys=service.keys, HALFTONE_TIME_STEP_MS=str(SLOW_STEP_MS))
    try:
        sign_in(browser, slow, "analyst")
        begun = time.monotonic()
        ask(browser, "SELECT COUNT(*) AS followed FROM visits", "0.05")
        browser.shows("#asking", "Working on it")
        browser.find("#cancel")
        browser.shows("#answer", "followed")
        assert time.monotonic() - begun > SLOW_STEP_MS / 1000
        browser.shows("#asking", "Answered: 1 row.")
    finally:
        slow.stop()
