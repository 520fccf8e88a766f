"""The report in a real browser: no errors, no requests, nothing wider than the page or cut off.

It needs Chromium (Debian's package, or CHROMIUM naming another) and is skipped without one.
"""

import os
import shutil
from dataclasses import replace
from itertools import product

import pytest
from click.testing import CliRunner

from reproduction import __main__ as main
from reproduction.report import page
from tests.reproduction.studies.small_streams import streams
from tests.reproduction.studies.test_smoke import DATA

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


# Elements that reach beyond the page, but for those in a box that scrolls; texts of a figure that
# reach beyond the figure; texts of a figure that cover one another.
TROUBLES = """() => {
  const found = [], width = document.documentElement.clientWidth;
  for (const one of document.querySelectorAll('body *')) {
    const box = one.getBoundingClientRect();
    if (box.width && !one.closest('.scroll, svg') && (box.left < -1 || box.right > width + 1))
      found.push(`beyond the page: ${one.tagName} ${one.textContent.slice(0, 40)}`);
  }
  for (const figure of document.querySelectorAll('svg')) {
    const outer = figure.getBoundingClientRect();
    const texts = [...figure.querySelectorAll('text')].map(t => [t, t.getBoundingClientRect()]);
    for (const [i, [text, a]] of texts.entries()) {
      if (a.left < outer.left - 1 || a.right > outer.right + 1 ||
          a.top < outer.top - 1 || a.bottom > outer.bottom + 1)
        found.push(`cut off: ${text.textContent}`);
      for (const [other, b] of texts.slice(i + 1))
        if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 &&
            Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 5)
          found.push(`covered: ${text.textContent} / ${other.textContent}`);
    }
    const size = Math.min(...texts.map(([, box]) => box.height));
    if (size < 9) found.push(`too small to read: ${size}`);
  }
  return found;
}"""


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("folded", [True, False])
def test_the_report_opens_clean_and_fits(
    browser, make_result, tmp_path, width, height, scheme, folded
):
    wide = make_result(label="A long name of a row " * 2, note="a remark " * 30)
    page.write([wide, replace(wide, study="five_models")], tmp_path / "report.html")
    drawn = look_at(browser, tmp_path / "report.html", width, height, scheme, folded)
    assert len(drawn) == 3
    assert all(size > 300 for size in drawn)


@pytest.mark.slow
def test_the_page_of_all_studies_opens_clean_and_fits(browser, tmp_path):
    given = ["--smoke", "--jobs", "1", "--out", str(tmp_path)]  # a patch holds in one process
    with streams(tmp_path, *DATA):
        done = CliRunner().invoke(main.command, given)
        assert done.exit_code == 0, done.output
    for width, folded in product((1280, 390), (True, False)):
        file = tmp_path / "smoke" / "report.html"
        assert len(look_at(browser, file, width, 844, "dark", folded)) == 17


def look_at(browser, file, width, height, scheme, folded):
    """Open a page and assert that nothing is wrong with it; the widths of its figures."""
    troubles, requests = [], []
    tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    tab.set_default_timeout(PATIENCE)
    tab.on("console", lambda said: troubles.append(said.text))
    tab.on("pageerror", lambda error: troubles.append(str(error)))
    tab.on("request", lambda asked: requests.append(asked.url))
    tab.goto(file.as_uri())
    if not folded:
        tab.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    troubles += tab.evaluate(TROUBLES)
    drawn = tab.evaluate(
        "[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().width)"
    )
    excess = tab.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    tab.close()
    assert troubles == []
    assert requests == [file.as_uri()]
    assert excess <= 0
    return drawn
