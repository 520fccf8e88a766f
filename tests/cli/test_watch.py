"""``distinctkv watch``: alerts, the live view, the report, the metrics."""

import io
import json
import signal
import threading
import time
from urllib.request import urlopen

import pytest
from click.testing import CliRunner
from rich.console import Console

from distinctkv.cli import main, watch
from distinctkv.logs import LogParser
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


def test_a_line_that_opens_a_template_is_an_alert(path):
    first, second = objects(alerts(path).stdout)
    assert (first["id"], first["template"], first["number"]) == (0, "door <*> opened", 1)
    assert second["line"] == "2024-05-01 10:00:07 WARN key lost"
    assert (second["logged"], second["number"]) == ("2024-05-01 10:00:07", 4)
    assert 0 < second["novelty"] <= 1
    assert second["time"].endswith("+00:00")


def test_a_pipe_is_watched_too():
    assert [row["id"] for row in objects(alerts("-", content=LINES).stdout)] == [0, 1]


def test_a_known_template_is_no_alert(path, tmp_path):
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


def test_the_metrics_follow_the_log_and_a_baseline_is_silent(path, watcher):
    one = watcher(path, "--baseline")
    one.until(lambda: one.metrics()["distinctkv_lines_total"] == "4.0")
    found = one.metrics()
    assert found["distinctkv_templates"] == found["distinctkv_templates_opened_total"] == "2.0"
    assert found["distinctkv_budget_slots"] == "+Inf"
    with path.open("a") as file:
        file.write("2024-05-01 10:02:00 INFO bell rang\n")
    one.until(lambda: one.alerts)
    assert [row["template"] for row in one.alerts] == ["bell rang"]


def more(n_lines):
    return "".join(f"2024-05-01 10:03:00 INFO {'word ' * n}end\n" for n in range(n_lines))


KILLED = """
from distinctkv.logs import job
from distinctkv.cli import watch
import os
job.LINES, job.LINES_PER_SLOT, watch.CHUNK, save, left = 50, 0, 1 << 11, job.Job.save, [{saves}]
def doomed(self):
    save(self)
    left[0] -= 1
    if not left[0]:
        os._exit(9)
job.Job.save = doomed
"""


@pytest.mark.parametrize("saves", [1, 4])
def test_a_baseline_survives_a_kill(path, tmp_path, saves):
    path.write_text(LINES + more(300))
    given = ["watch", "--no-follow", path, "--baseline", "--state", tmp_path / "app.state"]
    given += ["--header", r"\S+ \S+ \w+ "]
    assert run(*given, before=KILLED.format(saves=saves)).returncode == 9
    with path.open("a") as file:
        file.write("2024-05-01 10:02:00 INFO bell rang\n")
    rows = objects(run(*given).stdout)
    assert [(row["template"], row["number"]) for row in rows] == [("bell rang", 305)]


@pytest.mark.parametrize("saves", [1, 2, 4])
def test_a_kill_after_a_save_loses_no_alert(path, tmp_path, saves):
    path.write_text(LINES + more(300))
    given = ["watch", "--no-follow", path, "--state", tmp_path / "app.state"]
    given += ["--header", r"\S+ \S+ \w+ "]
    killed = run(*given, before=KILLED.format(saves=saves))
    assert killed.returncode == 9
    rows = objects(killed.stdout) + objects(run(*given).stdout)
    wanted = objects(run(*given[:3], *given[5:]).stdout)
    assert [row["number"] for row in rows] == [row["number"] for row in wanted]


BASELINES = {  # what is there when the baseline is taken, what is there later, alerts then
    "an empty file": ("", LINES, [1, 4]),
    "a longer file": (LINES, LINES + "2024-05-01 10:02:00 INFO bell rang\n", [5]),
    "another file": (more(300), LINES, [301, 304]),
    "a partial line": (
        LINES + "2024-05-01 10:00:09 INFO half",
        LINES + "2024-05-01 10:00:09 INFO half past nine\n2024-05-01 10:02:00 INFO bell rang\n",
        [6],
    ),
}


@pytest.mark.parametrize("case", BASELINES)
def test_lines_after_the_baseline_are_alerts(path, tmp_path, case):
    before, after, numbers = BASELINES[case]
    given = [path, "--baseline", "--state", tmp_path / "app.state"]
    path.write_text(before)
    assert alerts(*given).stdout == ""
    path.write_text(after)
    assert [row["number"] for row in objects(alerts(*given).stdout)] == numbers


def test_a_wrong_call_is_refused(path, tmp_path):
    assert "regular file" in alerts("-", "--baseline", content=LINES).stderr
    assert "no folder" in alerts(path, "--report", tmp_path / "none" / "page.html").stderr


def test_the_report_is_written_now_and_then_and_at_the_end(path, tmp_path, monkeypatch):
    page, written = tmp_path / "page.html", []
    write = watch.write_report

    def noted(job, path):
        written.append(job.parser.seen)
        write(job, path)

    monkeypatch.setattr(watch, "REPORT", -1.0)
    monkeypatch.setattr(watch, "write_report", noted)
    assert alerts(path, "--report", page).exit_code == 0
    assert len(written) > 1
    assert "door &lt;*&gt; opened" in page.read_text()


def test_a_terminal_shows_the_view(path):
    shown, status = on_terminal("watch", "--no-follow", path)
    assert status == 0
    for part in ("new templates", "frequent templates", "door <*> opened", "temperature", "75.0%"):
        assert part in shown


@pytest.mark.parametrize(("width", "height"), [(60, 20), (160, 50)])
def test_the_view_fits_its_terminal(tmp_path, seed, width, height):
    path = tmp_path / "app.log"
    path.write_text(log(3000, seed))
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True)
    job = Job([str(path)], LogParser(Concentration.surprise(0.3, 9, 90)), detect_header=True)
    with watch.live_view(job, console) as show:
        for batch in job:
            show([*job.alerts(batch)])
    console.file = last = io.StringIO()
    console.print(watch.terminal_view(job, 7.0, [], job.templates(), height))
    lines = last.getvalue().splitlines()
    assert len(lines) <= height
    assert "3,000 lines" in last.getvalue()


def test_an_alert_waits_for_its_lines_and_its_level(path):
    path.write_text(LINES + "2024-05-01 10:00:08 ERROR bell rang\n" * 3)
    rows = objects(alerts(path, "--times", "3", "--within", "1m").stdout)
    assert [row["template"] for row in rows] == ["door <*> opened", "bell rang"]
    assert (rows[1]["level"], rows[1]["seen"]) == ("error", 3)
    [row] = objects(alerts(path, "--level", "error").stdout)
    assert row["template"] == "bell rang"
    rows = objects(alerts(path, "--warmup", "5s").stdout)
    assert [row["template"] for row in rows] == ["key lost", "bell rang"]


@pytest.mark.parametrize("given", [["--within", "5m"], ["--warmup", "soon"], ["--level", "loud"]])
def test_a_wrong_rule_is_refused(path, given):
    refused = alerts(path, *given)
    assert refused.exit_code == 2
    assert given[0] in refused.stderr
