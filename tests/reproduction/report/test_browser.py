"""The report in a real browser: no errors, no requests, figures there, nothing wider than the page.

It needs Chromium (Debian's package, or CHROMIUM naming another) and is skipped without one.
"""

import os
import shutil

import pytest

from reproduction.report import page

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
FLAGS += ["--disable-dev-shm-usage"]  # which is small in a container
PATIENCE = 300_000  # milliseconds, for a machine that is busy


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium is installed; apt-get install chromium, or set CHROMIUM")
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS, timeout=PATIENCE)
        yield browser
        browser.close()


@pytest.mark.parametrize("width", [1100, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_opens_clean_and_fits(browser, result, tmp_path, width, scheme):
    file = tmp_path / "report.html"
    page.write([result], file)
    troubles, requests = [], []
    tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    tab.set_default_timeout(PATIENCE)
    tab.on("console", lambda said: troubles.append(said.text))
    tab.on("pageerror", lambda error: troubles.append(str(error)))
    tab.on("request", lambda asked: requests.append(asked.url))
    tab.goto(file.as_uri())
    drawn = tab.evaluate(
        "[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().width)"
    )
    wide = tab.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    tab.close()
    assert troubles == []
    assert requests == [file.as_uri()]
    assert drawn
    assert all(size > 100 for size in drawn)
    assert wide <= 0
