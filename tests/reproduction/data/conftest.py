"""Folders of our own instead of the user's, and no way out to the network."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pooch
import pytest

LOCAL = "http://127.0.0.1"


class Quiet(SimpleHTTPRequestHandler):
    """Files of a folder, without a log; ``broken`` ends before its length."""

    def do_GET(self):
        if self.path != "/broken":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"only this")

    def log_message(self, *_):
        pass


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder of data and an empty cache; only this machine can be reached."""
    places = {name: tmp_path / name for name in ("data", "cache")}
    for name, path in places.items():
        path.mkdir()
        monkeypatch.setenv(f"DISTINCTKV_{name.upper()}", str(path))
    retrieve = pooch.retrieve

    def local(url, *arguments, **settings):
        if not url.startswith(LOCAL):
            raise ConnectionError(f"{url}: no network")
        return retrieve(url, *arguments, **settings)

    monkeypatch.setattr(pooch, "retrieve", local)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return places


@pytest.fixture
def web(here, tmp_path, monkeypatch):
    """A folder, and the address at which this machine serves it to itself."""
    folder = tmp_path / "web"
    folder.mkdir()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield folder, f"{LOCAL}:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()
