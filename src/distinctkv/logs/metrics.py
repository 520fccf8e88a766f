"""Numbers for Prometheus, served to this machine."""

from __future__ import annotations

from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from threading import Thread

from .history import Sample
from .splitting import Tally

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LOOPBACK = "127.0.0.1"
PATIENCE = 5.0  # seconds that a client may be silent
_MEANING = {
    "lines_total": ("counter", "Lines taken in."),
    "novelties_total": ("counter", "Templates opened or parted off, those that are gone included."),
    "forgotten_lines_total": ("counter", "Lines in templates that were evicted."),
    "odd_lines_total": ("counter", "Lines that were not plain, by what was odd; none is skipped."),
    "templates": ("gauge", "Templates held."),
    "slots": ("gauge", "Slots held: templates, and words seen in them."),
    "budget_slots": ("gauge", "Slots granted."),
    "temperature": ("gauge", "How often slots opened lately, from 0 to 1."),
}


def render(sample: Sample, tally: Tally, forgotten: int) -> str:
    """The numbers in Prometheus' text format, version 0.0.4.

    >>> print(render(Sample(7, 2, 2, 3, None, 0.25), Tally(), 0)[:108])
    # HELP distinctkv_lines_total Lines taken in.
    # TYPE distinctkv_lines_total counter
    distinctkv_lines_total 7
    """
    odd = {f'{{kind="{name}"}}': n for name, n in tally.odd().items()}
    values: dict[str, Mapping[str, float]] = {
        "lines_total": {"": sample.lines},
        "novelties_total": {"": sample.opened},
        "forgotten_lines_total": {"": forgotten},
        "odd_lines_total": odd,
        "templates": {"": sample.templates},
        "slots": {"": sample.slots},
        "budget_slots": {"": inf if sample.budget is None else sample.budget},
        "temperature": {"": sample.temperature},
    }
    rows = []
    for name, (kind, meaning) in _MEANING.items():
        rows += [f"# HELP distinctkv_{name} {meaning}", f"# TYPE distinctkv_{name} {kind}"]
        rows += [f"distinctkv_{name}{label} {_number(n)}" for label, n in values[name].items()]
    return "\n".join(rows) + "\n"


def _number(n: float) -> str:
    return "+Inf" if n == inf else repr(n)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Stay quiet about clients that went away."""


class Metrics:
    """Serves the text that was published last, at ``/metrics``, from a thread of its own."""

    def __init__(self, port: int, host: str = LOOPBACK) -> None:
        outer = self

        class Answer(BaseHTTPRequestHandler):
            timeout = PATIENCE

            def do_GET(self) -> None:
                self.wfile.write(self._begin())

            def do_HEAD(self) -> None:
                self._begin()

            def _begin(self) -> bytes:
                found = self.path.split("?")[0] in ("/metrics", "/")
                body = outer._text if found else b"the numbers are at /metrics\n"
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", CONTENT_TYPE if found else "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                return body

            def log_message(self, *_: object) -> None:
                """Stay quiet."""

        self._text = b""
        try:
            self._server = _Server((host, port), Answer)
        except OSError as error:
            raise ValueError(
                f"cannot serve metrics on {host}:{port}: {error.strerror}; "
                "choose another port, or 0 for any that is free"
            ) from error
        self.port: int = self._server.server_address[1]
        Thread(target=self._server.serve_forever, daemon=True).start()

    def publish(self, text: str) -> None:
        """Serve this from now on."""
        self._text = text.encode()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
