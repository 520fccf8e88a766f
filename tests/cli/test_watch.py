"""``distinctkv watch``: alerts, the live view, the report, the metrics."""

import io
import json
import signal
import threading
import time
from urllib.request import urlopen

import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure
from rich.console import Console

from distinctkv.cli import main, watch
from distinctkv.cli import report as watching
from distinctkv.cli.view import View, spark
from distinctkv.logs import LogParser
from distinctkv.logs.history import Sample
from distinctkv.logs.job import Job
from distinctkv.policy import Concentration
from tests.cli.logs import HASTE, log, objects, run, start
from tests.cli.terminal import on_terminal

LINES = "2024-05-01 10:00:00 INFO door 1 opened\n" * 3 + "2024-05-01 10:00:07 WARN key lost\n"


def alerts(*arguments, content=None):
    """What it prints about a log that has ended."""
    given = ["watch", "--no-follow", *map(str, arguments)]
    return CliRunner().invoke(main, given, input=content)


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "app.log"
    made.write_text(LINES)
    return made


def test_a_line_that_opens_a_template_is_told(path):
    first, second = objects(alerts(path).stdout)
    assert (first["id"], first["template"], first["number"]) == (0, "door <*> opened", 1)
    assert second["line"] == "2024-05-01 10:00:07 WARN key lost"
    assert (second["logged"], second["number"]) == ("2024-05-01 10:00:07", 4)
    assert 0 < second["novelty"] <= 1
    assert second["time"].endswith("+00:00")


def test_a_pipe_is_watched_too(path):
    assert [row["id"] for row in objects(alerts("-", content=LINES).stdout)] == [0, 1]


def test_what_is_known_is_not_told_again(path, tmp_path):
    state = tmp_path / "app.state"
    alerts(path, "--state", state)
    with path.open("a") as file:
        file.write("2024-05-01 10:01:00 INFO door 9 opened\n2024-05-01 10:01:00 INFO bell rang\n")
    [row] = objects(alerts(path, "--state", state).stdout)
    assert (row["template"], row["number"]) == ("bell rang", 6)


class Watcher:
    """A watch in a process of its own, its alerts read as they come."""

    def __init__(self, *arguments):
        self.process = start("watch", "--alert", "--metrics", 0, *arguments, before=HASTE)
        self.address = self.process.stderr.readline().decode().split()[1]
        self.alerts = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self):
        for line in self.process.stdout:
            self.alerts.append(json.loads(line))

    def until(self, test):
        """Wait for something to become true."""
        end = time.monotonic() + 60
        while not test() and time.monotonic() < end:
            time.sleep(0.02)
        assert test()

    def metrics(self):
        with urlopen(self.address, timeout=60) as answer:
            rows = answer.read().decode().splitlines()
        return dict(row.rsplit(" ", 1) for row in rows if not row.startswith("#"))

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        told = self.process.stderr.read().decode()
        self._thread.join(60)
        self.process.stdout.close()
        self.process.stderr.close()
        return self.process.wait(60), told


@pytest.fixture
def watcher():
    made = []

    def begin(*arguments):
        made.append(Watcher(*arguments))
        return made[-1]

    yield begin
    for one in made:
        if one.process.returncode is None:
            one.stop()


def test_alerts_come_as_the_file_grows(path, watcher):
    one = watcher(path, "--header", "auto")
    one.until(lambda: len(one.alerts) == 2)
    with path.open("a") as file:
        file.write("2024-05-01 10:02:00 INFO bell rang\n")
    one.until(lambda: len(one.alerts) == 3)
    assert one.alerts[-1]["template"] == "bell rang"
    status, told = one.stop()
    assert status == 130
    assert "Traceback" not in told
    assert "lines: 5 in" in told


def test_what_is_there_already_can_be_learnt_in_silence(path, watcher):
    one = watcher(path, "--learn")
    one.until(lambda: one.metrics()["distinctkv_lines_total"] == "4")
    time.sleep(0.5)
    with path.open("a") as file:
        file.write("2024-05-01 10:02:00 INFO bell rang\n")
    one.until(lambda: one.alerts)
    assert [row["template"] for row in one.alerts] == ["bell rang"]


def more(n_lines):
    return "".join(f"2024-05-01 10:03:00 INFO {'word ' * n}end\n" for n in range(n_lines))


STRUCK = """
from distinctkv.logs import job
from distinctkv.cli import watch
import os
job.LINES, job.LINES_PER_SLOT, watch.CELL, save, left = 50, 0, 1 << 11, job.Job.save, [{saves}]
def doomed(self):
    save(self)
    left[0] -= 1
    if not left[0]:
        os._exit(9)
job.Job.save = doomed
"""


@pytest.mark.parametrize("saves", [1, 2, 4])
def test_what_was_being_learnt_at_a_kill_is_learnt_and_no_more(path, tmp_path, saves):
    path.write_text(LINES + more(300))
    given = ["watch", "--no-follow", path, "--learn", "--state", tmp_path / "app.state"]
    given += ["--header", r"\S+ \S+ \w+ "]
    assert run(*given, before=STRUCK.format(saves=saves)).returncode == 9
    with path.open("a") as file:
        file.write("2024-05-01 10:02:00 INFO bell rang\n")
    rows = objects(run(*given).stdout)
    assert [(row["template"], row["number"]) for row in rows] == [("bell rang", 305)]


def test_a_file_that_was_empty_when_learning_began_is_all_new(path, tmp_path):
    path.write_text("")
    given = [path, "--learn", "--state", tmp_path / "app.state"]
    assert alerts(*given).stdout == ""
    path.write_text(LINES)
    assert [row["number"] for row in objects(alerts(*given).stdout)] == [1, 4]


def test_another_file_is_not_what_was_learnt(path, tmp_path):
    path.write_text(more(300))
    given = [path, "--learn", "--state", tmp_path / "app.state"]
    assert alerts(*given).stdout == ""
    path.write_text(LINES)
    assert [row["number"] for row in objects(alerts(*given).stdout)] == [301, 304]


def test_a_line_that_had_begun_is_learnt(path, tmp_path):
    path.write_text(LINES + "2024-05-01 10:00:09 INFO half")
    given = [path, "--learn", "--state", tmp_path / "app.state"]
    assert alerts(*given).stdout == ""
    with path.open("a") as file:
        file.write(" past nine\n2024-05-01 10:02:00 INFO bell rang\n")
    assert [row["number"] for row in objects(alerts(*given).stdout)] == [6]


def test_the_metrics_follow_the_log(path, watcher):
    one = watcher(path)
    one.until(lambda: one.metrics()["distinctkv_lines_total"] == "4")
    found = one.metrics()
    assert found["distinctkv_templates"] == found["distinctkv_novelties_total"] == "2"
    assert found["distinctkv_budget_slots"] == "+Inf"


def test_a_report_is_one_page_that_needs_no_network(path, tmp_path):
    page = tmp_path / "page.html"
    assert alerts(path, "--report", page).exit_code == 0
    text = page.read_text()
    assert "door &lt;*&gt; opened" in text
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org/", "")
    assert "<script" not in text


def test_a_report_that_cannot_be_made_is_refused_before_the_work(path, tmp_path, monkeypatch):
    answer = alerts(path, "--report", tmp_path / "none" / "page.html")
    assert "there is no folder" in answer.stderr
    monkeypatch.setattr("distinctkv.cli.reproduce.find_spec", lambda _: None)
    answer = alerts(path, "--report", tmp_path / "page.html")
    assert "pip install 'distinctkv[report]'" in answer.stderr
    assert answer.exit_code == 1


def test_the_report_is_written_while_it_goes_on(path, tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(watch, "REPORT", -1.0)
    monkeypatch.setattr(watch, "write", lambda job, *_: written.append(job.parser.seen))
    alerts(path, "--report", tmp_path / "page.html")
    assert len(written) > 1


def test_a_terminal_shows_the_view(path):
    shown, status = on_terminal("watch", "--no-follow", path)
    assert status == 0
    for said in ("new templates", "frequent templates", "door <*> opened", "temperature", "75.0%"):
        assert said in shown


def test_the_view_fits_its_terminal(tmp_path, seed):
    path = tmp_path / "app.log"
    path.write_text(log(3000, seed))
    for width, height in ((60, 20), (100, 30), (160, 50)):
        out = io.StringIO()
        console = Console(file=out, width=width, height=height)
        job = Job([str(path)], LogParser(Concentration.surprise(0.3, 9, 90)))
        with View(job, console) as view:
            for found in watch.watched(job):
                view.show(found)
        console.file = last = io.StringIO()
        console.print(view)
        lines = last.getvalue().splitlines()
        assert len(lines) <= height
        assert max(map(len, lines)) <= width
        assert f"{job.parser.seen:,} lines" in last.getvalue()


def test_bars_show_the_whole_range():
    assert spark([0.0, 0.5, 1.0], 1.0) == "▁▅█"
    assert spark([]) == ""
    assert spark([0, 0]) == "▁▁"


@pytest.mark.parametrize("width", [60, 70, 100])
def test_sparklines_show_the_newest(tmp_path, seed, width):
    path = tmp_path / "a-name-that-is-longer-than-the-place-it-has-on-a-narrow-terminal.log"
    path.write_text(log(3000, seed))
    job = Job([str(path)], LogParser())
    with View(job, Console(file=io.StringIO(), width=width, height=40)) as view:
        for found in watch.watched(job):
            view.show(found)
    job.history.samples[:] = [one._replace(slots=0) for one in job.history.samples]
    console = Console(file=io.StringIO(), width=width, height=40)
    console.print(view)
    [row] = [line for line in console.file.getvalue().splitlines() if line.startswith("slots")]
    assert row.rstrip().endswith("▁█")


def test_the_drawn_templates_do_not_fall_at_the_end(tmp_path):
    rises = [Sample(lines, 9, 9, 9, None, 0.0) for lines in (1, 2)]
    axes = Figure().subplots()
    watching.slots(axes, [*rises, Sample(3, 9, 4, 9, None, 0.0)])
    assert [*axes.lines[1].get_ydata()] == [9, 9]


def test_the_report_says_that_templates_part(path, tmp_path):
    page = tmp_path / "page.html"
    alerts(path, "--report", page)
    assert "templates opened or parted off" in page.read_text()
