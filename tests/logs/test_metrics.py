"""Prometheus can read the numbers, over HTTP."""

import re
import socket
import struct
import time
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from distinctkv.logs import metrics as server
from distinctkv.logs.history import Sample
from distinctkv.logs.metrics import CONTENT_TYPE, Metrics, render
from distinctkv.logs.splitting import Tally

SAMPLE = Sample(7, 3, 2, 4, 5.5, 0.25)
LINE = re.compile(r'distinctkv_([a-z_]+)(?:\{kind="([a-z]+)"\})? ([0-9.e+-]+|\+Inf)')


@pytest.fixture
def metrics():
    served = Metrics(0)
    yield served
    served.close()


def get(metrics, path="/metrics"):
    return urlopen(f"http://127.0.0.1:{metrics.port}{path}", timeout=60)


def values(text):
    rows = [LINE.fullmatch(row) for row in text.splitlines() if not row.startswith("#")]
    assert all(rows)
    return {(name, kind): number for name, kind, number in (row.groups() for row in rows)}


def test_every_number_is_there():
    found = values(render(SAMPLE, Tally(cut=2, undecodable=1), 9))
    assert found["lines_total", None] == "7"
    assert found["novelties_total", None] == "3"
    assert found["templates", None] == "2"
    assert found["slots", None] == "4"
    assert found["budget_slots", None] == "5.5"
    assert found["temperature", None] == "0.25"
    assert found["forgotten_lines_total", None] == "9"
    assert (found["odd_lines_total", "cut"], found["odd_lines_total", "empty"]) == ("2", "0")


def test_no_limit_is_infinite():
    assert values(render(SAMPLE._replace(budget=None), Tally(), 0))["budget_slots", None] == "+Inf"


def test_every_number_has_its_help_and_type_just_before():
    told = None
    for row in render(SAMPLE, Tally(), 0).splitlines():
        if row.startswith("# HELP"):
            told = row.split()[2]
        elif row.startswith("# TYPE"):
            assert row.split()[2] == told
            assert row.split()[3] in ("counter", "gauge")
        else:
            assert re.match(r"\w+", row)[0] == told


def test_what_was_published_last_is_served(metrics):
    metrics.publish("old\n")
    metrics.publish("new\n")
    with get(metrics) as answer:
        assert answer.read() == b"new\n"
        assert answer.headers["Content-Type"] == CONTENT_TYPE


def test_other_paths_are_not_there(metrics):
    with pytest.raises(HTTPError, match="404") as caught:
        get(metrics, "/secret")
    caught.value.close()


def test_a_port_in_use_is_refused(metrics):
    with pytest.raises(ValueError, match=f"127.0.0.1:{metrics.port}: .*; choose another port"):
        Metrics(metrics.port)


def test_a_client_may_ask_for_the_head_alone(metrics):
    metrics.publish("new\n")
    request = Request(f"http://127.0.0.1:{metrics.port}/metrics", method="HEAD")
    with urlopen(request, timeout=60) as answer:
        assert (answer.read(), answer.headers["Content-Length"]) == (b"", "4")


def test_a_client_that_falls_silent_is_let_go(monkeypatch):
    monkeypatch.setattr(server, "PATIENCE", 0.1)
    served = Metrics(0)
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as client:
        client.send(b"GET /met")
        assert client.recv(1) == b""
    served.close()


def test_a_client_that_goes_away_is_not_told_of(metrics, capfd):
    client = socket.create_connection(("127.0.0.1", metrics.port), timeout=60)
    client.send(b"GET /metrics HTTP/1.0\r\n")
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        get(metrics).close()
        time.sleep(0.05)
    assert capfd.readouterr().err == ""
