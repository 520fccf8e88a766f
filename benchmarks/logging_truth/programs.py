"""Programs that log through ``logging``, each run for some seconds on this machine alone.

``python programs.py NAME PATH`` runs one and appends its lines to a file, as JSON: ``program``,
``level``, ``template`` (``<*>`` for each value), ``message`` (its first line), and ``wild``: the
template has no word of its own, or values were put into it before it was logged. Such lines are out
of scores. It needs the standard library and the program, not distinctkv.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import socketserver
import sys
import tempfile
import threading
import time
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MAX_LINES = 4000  # of one program
# What the programs are installed from; the versions decide what they log.
REQUIREMENTS = (
    "alembic==1.20.1",
    "apscheduler==3.11.3",
    "charset-normalizer==3.5.2",
    "distributed==2026.8.0",
    "fakeredis==2.40.0",
    "fonttools==4.68.0",
    "matplotlib==3.11.2",
    "pip==26.3",
    "requests==2.34.2",
    "rq==2.12.0",
    "scrapy==2.19.0",
    "virtualenv==21.15.6",
)
_value = re.compile(r"%(?:\(\w+\))?[#0 +-]*(?:\*|\d+)?(?:\.(?:\*|\d+))?[hlL]?([a-zA-Z%])")


def template_of(message: object, *, has_values: bool) -> str:
    """The template of a format string for ``%``; only with values is it one.

    >>> template_of("%s: %5.2f %% of %(name)r", has_values=True)
    '<*>: <*> % of <*>'
    >>> template_of("100 %s", has_values=False)
    '100 %s'
    """
    text = str(message)
    return _value.sub(lambda found: "%" if found[1] == "%" else "<*>", text) if has_values else text


class TruthHandler(logging.Handler):
    """Appends each record to a file as a JSON line, up to a number of lines."""

    def __init__(self, program: str, path: Path) -> None:
        super().__init__(logging.NOTSET)
        self._program, self._n_lines = program, 0
        # Forked workers append to the same file, one write a line.
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; one whose values do not fit its format string is left out."""
        if self._n_lines >= MAX_LINES:
            return
        try:
            message = record.getMessage()
        except (TypeError, ValueError, KeyError):
            return
        template = template_of(record.msg, has_values=bool(record.args))
        has_words = re.search(r"[^\W\d_]", template.replace("<*>", ""))
        # Some programs fill in the values first, and pass them on for handlers that want them.
        has_places = bool(record.args) and template != str(record.msg)
        row = {
            "program": self._program,
            "level": record.levelname,
            "template": _first_line(template),
            "message": _first_line(message),
            "wild": not (has_words and (has_places or _is_constant(record.msg))),
        }
        os.write(self._file, json.dumps(row).encode() + b"\n")
        self._n_lines += 1


def _is_constant(message: object) -> bool:
    """Whether a function that is running has this text as a constant: no value was put into it."""
    frame = sys._getframe()
    while frame is not None:
        if message in frame.f_code.co_consts:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _first_line(text: str) -> str:
    return (text.splitlines() or [""])[0]


def capture(program: str, path: Path) -> None:
    """Send every record of this process to a file, however loggers are configured later."""
    handler, pass_on = TruthHandler(program, path), logging.Logger.callHandlers

    def call_handlers(logger: logging.Logger, record: logging.LogRecord) -> None:
        handler.handle(record)
        pass_on(logger, record)

    logging.Logger.callHandlers = call_handlers  # type: ignore[method-assign]
    logging.getLogger().setLevel(logging.DEBUG)
    logging.getLogger().addHandler(logging.NullHandler())


class _Pages(BaseHTTPRequestHandler):
    """Pages with links, redirects, errors, empty answers, and connections that are cut."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer by the path."""
        place = self.path.partition("?")[0]
        found = re.fullmatch(r"/page/(\d+)", place)
        if place.startswith("/cut"):
            self.close_connection = True
            return
        if place.startswith("/to/"):
            self._answer(302, b"", [("Location", f"/page/{place[4:]}")])
        elif place.startswith("/status/"):
            self._answer(int(place[8:]), b"no")
        elif found or place == "/":
            number = int(found[1]) if found else 0
            status = (404, 500, 403, 204)[number % 4]
            links = [f"/page/{2 * number + 1}", f"/page/{2 * number + 2}", f"/to/{number + 3}"]
            links += [f"/status/{status}", "http://example.invalid/x"]
            body = "".join(f'<a href="{link}">{link}</a>' for link in links)
            self._answer(200, f"<title>Page {number}</title>{body}".encode())
        else:
            self._answer(404, b"none")

    do_POST = do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _answer(
        self, status: int, body: bytes, headers: list[tuple[str, str]] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in [("Content-Type", "text/html"), *(headers or [])]:
            self.send_header(name, value)
        body = b"" if status == 204 else body
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            with suppress(OSError):
                self.wfile.write(body)


@contextmanager
def _site() -> Iterator[str]:
    """A web site on the loopback interface; its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Pages)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()


def run_alembic(folder: Path) -> None:
    """Migrations of a small database, up, down and compared with the tables."""
    import sqlalchemy as sa
    from alembic import command
    from alembic.autogenerate import compare_metadata
    from alembic.config import Config
    from alembic.runtime.migration import MigrationContext

    config = Config(folder / "alembic.ini", stdout=io.StringIO())
    config.set_main_option("script_location", str(folder / "scripts"))
    config.set_main_option("sqlalchemy.url", f"sqlite:///{folder}/app.db")
    command.init(config, str(folder / "scripts"))
    for number in range(12):
        name = ("users", "orders", "invoices", "sessions")[number % 4]
        revision: Any = command.revision(config, message=f"change {number} of {name}")
        script = Path(revision.path)
        text = script.read_text()
        script.write_text(text.replace("    pass", f"    op.execute('select {number}')"))
    for target in ("head", "-3", "+2", "base", "head"):
        move = command.downgrade if target in ("-3", "base") else command.upgrade
        move(config, target)
    command.history(config)
    command.stamp(config, "base")
    engine = sa.create_engine(f"sqlite:///{folder}/other.db")
    before, after = sa.MetaData(), sa.MetaData()
    for number in range(9):
        columns = [sa.Column(f"field_{n}", sa.String(20 + n)) for n in range(number % 4 + 1)]
        table = sa.Table(f"table_{number}", before, sa.Column("id", sa.Integer, primary_key=True))
        for column in columns:
            table.append_column(column)
        sa.Index(f"index_{number}", table.c.field_0)
    before.create_all(engine)
    for number in range(3, 12):
        kind: Any = sa.Integer if number % 3 else sa.Text
        sa.Table(f"table_{number}", after, sa.Column("id", sa.Integer, primary_key=True),
                 sa.Column("field_0", kind, nullable=number % 2 == 0),
                 sa.Column(f"new_{number}", sa.Date))  # fmt: skip
    with engine.connect() as connection:
        options = {"compare_type": True}
        compare_metadata(MigrationContext.configure(connection, opts=options), after)


def run_apscheduler(folder: Path) -> None:
    """Jobs that run, fail, come too late, overlap, pause and end."""
    from apscheduler.executors.pool import ThreadPoolExecutor
    from apscheduler.schedulers.background import BackgroundScheduler

    def work(seconds: float, fails: bool = False) -> None:
        time.sleep(seconds)
        if fails:
            raise ValueError(f"no data for {seconds}")

    scheduler = BackgroundScheduler(executors={"default": ThreadPoolExecutor(3)})
    for number, name in enumerate(("mail", "report", "clean up", "import")):
        scheduler.add_job(work, "interval", [0.02 * number, number == 2], seconds=0.2, id=name,
                          name=f"{name} {number}")  # fmt: skip
    scheduler.add_job(work, "interval", [1.5], seconds=0.3, name="slow", id="slow")
    scheduler.start()
    time.sleep(2)
    scheduler.add_job(work, "cron", [0.01], second="*", id="each second")
    scheduler.pause_job("mail")
    scheduler.reschedule_job("report", trigger="interval", seconds=0.4)
    time.sleep(2)
    scheduler.resume_job("mail")
    scheduler.remove_job("import")
    scheduler.add_jobstore("memory", "other")
    scheduler.pause()
    time.sleep(0.5)
    scheduler.resume()
    time.sleep(1.5)
    scheduler.shutdown()


def run_charset_normalizer(folder: Path) -> None:
    """The encoding of texts in several of them."""
    from charset_normalizer import from_bytes

    texts = {
        "cp1252": "Où est passé l'élève naïf ? Il a mangé une crêpe à Besançon. ",
        "cp1251": "Съешь же ещё этих мягких французских булок да выпей чаю. ",
        "shift_jis": "いろはにほへと ちりぬるを わかよたれそ つねならむ。",
        "gb18030": "天地玄黄,宇宙洪荒。日月盈昃,辰宿列张。",
        "utf-16": "Zażółć gęślą jaźń. ",
        "utf-8": "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ",
        "ascii": "The quick brown fox jumps over the lazy dog. ",
    }
    for encoding, text in texts.items():
        for times in (1, 40):
            from_bytes((text * times).encode(encoding), explain=True)


def run_distributed(folder: Path) -> None:
    """A scheduler with workers in this process: tasks, errors, workers that come and go."""
    from distributed import Client, LocalCluster, wait

    def work(number: int) -> int:
        if number % 11 == 5:
            raise RuntimeError(f"task {number} cannot run")
        return number * number

    cluster = LocalCluster(n_workers=3, threads_per_worker=1, processes=False,
                           dashboard_address=None, local_directory=str(folder))  # fmt: skip
    with cluster, Client(cluster) as client:
        wait(client.map(work, range(40)))
        client.scatter(list(range(20)), broadcast=True)
        total = client.submit(sum, client.map(work, range(40, 44)))
        total.result(timeout=10)
        client.rebalance()
        cluster.scale(1)
        time.sleep(1)
        cluster.scale(4)
        client.wait_for_workers(4)
        client.publish_dataset(squares=client.map(work, range(60, 64)))
        client.cancel(client.map(work, range(70, 90)))
        client.retire_workers()


def run_fonttools(folder: Path) -> None:
    """Fonts made smaller, instanced and merged."""
    import matplotlib
    from fontTools import merge, subset, ttx

    fonts = sorted((Path(matplotlib.get_data_path()) / "fonts" / "ttf").glob("DejaVu*.ttf"))
    for number, font in enumerate(fonts[:6]):
        made = folder / f"{font.stem}.ttf"
        options = ["--verbose", "--timing", "--layout-features=*"][: number % 3 + 1]
        subset.main([str(font), f"--text=hello {number}", f"--output-file={made}", *options])
        ttx.main(["-q" if number % 2 else "-v", "-d", str(folder), "-f", str(made)])
    merge.Merger().merge([str(folder / f"{font.stem}.ttf") for font in fonts[:3]])


def run_matplotlib(folder: Path) -> None:
    """Figures with fonts that exist and fonts that do not."""
    os.environ["MPLCONFIGDIR"] = str(folder)
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    families = ("DejaVu Sans", "Helvetica", "monospace", "No Such Font", "serif", "cursive")
    for number, family in enumerate(families):
        figure, axes = plt.subplots()
        with plt.rc_context({"font.family": family}):
            axes.plot(["a", "b", "c"], [number, 2, 3], label="_x" if number % 2 else "x")
            axes.set_title(f"{family} {number}", weight=("normal", "bold")[number % 2])
            axes.legend()
            for ending in ("png", "pdf", "svg", "ps")[: number % 4 + 1]:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    figure.savefig(folder / f"{number}.{ending}")
        plt.close(figure)


def run_pip(folder: Path) -> None:
    """Packages from a folder: found, refused, resolved, installed, upgraded, removed."""
    from pip._internal.cli.main import main

    wheels = folder / "wheels"
    wheels.mkdir()
    needs = {"app": ("web>=2", "store"), "web": ("url<3", "text"), "store": ("url>=1", "text!=1.1"),
             "url": (), "text": (), "old": ("url>=9",)}  # fmt: skip
    for name, requirements in needs.items():
        for version in ("1.0", "1.1", "2.0", "3.0rc1"):
            _write_wheel(wheels, name, version, requirements)
    (wheels / "web-2.5-cp27-cp27m-win32.whl").write_bytes(b"")
    (wheels / "notes.txt").write_text("no wheel")
    common = ["--no-index", "--find-links", str(wheels), "-vvv", "--target", str(folder / "site")]
    for wanted in (["app"], ["app==1.0", "url==1.1"], ["old"], ["--pre", "--upgrade", "app"],
                   ["none"], ["--upgrade", "text", "store"]):  # fmt: skip
        with suppress(SystemExit):
            main(["install", *common, *wanted])
    for command in (["list", "-vvv"], ["cache", "dir", "-vvv"], ["check", "-vvv"]):
        main(command)


def _write_wheel(folder: Path, name: str, version: str, requirements: tuple[str, ...]) -> None:
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requirements)
    files = {
        f"{name}.py": f"version = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)


def run_requests(folder: Path) -> None:
    """A client: retries, redirects, errors, connections that are cut, no server at all."""
    import requests
    from requests.adapters import HTTPAdapter, Retry

    with _site() as site, socketserver.TCPServer(("127.0.0.1", 0), None) as nobody:  # type: ignore[arg-type]
        nobody.server_close()
        closed = f"http://127.0.0.1:{nobody.server_address[1]}"
        for number in range(30):
            session = requests.Session()
            retry = Retry(2, backoff_factor=0.001, status_forcelist=[500, 503])
            if number % 3 == 0:
                session.mount("http://", HTTPAdapter(max_retries=retry))
            for path in (f"/page/{number}", f"/to/{number}", "/status/404", "/status/500",
                         f"/cut/{number}", f"/search?q={number}&page=1"):  # fmt: skip
                with suppress(requests.RequestException):
                    session.request(("GET", "POST", "HEAD")[number % 3], site + path, timeout=2)
            with suppress(requests.RequestException):
                session.get(f"{closed}/{number}", timeout=1)


def run_rq(folder: Path) -> None:
    """A queue with a worker: jobs that run, fail, are retried, and expire."""
    import fakeredis
    from rq import Queue, Retry, SimpleWorker

    logging.getLogger("rq.worker").setLevel(logging.DEBUG)
    redis = fakeredis.FakeStrictRedis()
    queues = [Queue(name, connection=redis) for name in ("high", "default", "low")]
    for number in range(60):
        queue = queues[number % 3]
        if number % 7 == 3:
            queue.enqueue(divmod, number, 0, retry=Retry(max=2), description=f"divide {number}")
        elif number % 7 == 5:
            queue.enqueue("no.such.function", number)
        else:
            queue.enqueue(sorted, [3, number, 1], result_ttl=(0, 500, -1)[number % 3])
    for _ in range(3):
        worker = SimpleWorker(queues, connection=redis)
        worker.work(burst=True, logging_level="DEBUG")


def run_scrapy(folder: Path) -> None:
    """A crawl of a small site: pages, items, redirects, errors, duplicates, other hosts."""
    import scrapy
    from scrapy.crawler import CrawlerProcess

    with _site() as site:

        class Spider(scrapy.Spider):
            name = "pages"
            start_urls = (f"{site}/", f"{site}/page/3", f"{site}/cut/1")
            allowed_domains = ("127.0.0.1",)

            def parse(self, response: Any) -> Iterator[Any]:  # noqa: ANN401
                title = response.css("title::text").get()
                yield {"title": title, "links": len(response.css("a")), "url": response.url}
                if response.url.endswith("7"):
                    raise ValueError(f"no title on {response.url}")
                for link in response.css("a::attr(href)").getall():
                    yield response.follow(link, self.parse)

        settings = {"LOG_ENABLED": False, "TELNETCONSOLE_ENABLED": False, "RETRY_TIMES": 1}
        settings |= {"CLOSESPIDER_PAGECOUNT": 250, "DEPTH_LIMIT": 6, "DUPEFILTER_DEBUG": True}
        process = CrawlerProcess(settings, install_root_handler=False)
        process.crawl(Spider)
        process.start()


def run_virtualenv(folder: Path) -> None:
    """Environments made and made again, with and without what they need."""
    from virtualenv import cli_run

    for number, options in enumerate((["--no-seed"], ["--no-seed", "--clear"], ["--no-seed"],
                                      ["--copies", "--no-seed"], ["--no-periodic-update"],
                                      ["--symlinks", "--no-periodic-update"],
                                      ["--python", "python9.9"])):  # fmt: skip
        with suppress(SystemExit, RuntimeError):
            cli_run([str(folder / f"env{number // 2}"), "-vvvv", "--with-traceback",
                     "--app-data", str(folder / "data"), *options])  # fmt: skip


PROGRAMS = {name[4:]: run for name, run in sorted(globals().items()) if name.startswith("run_")}


def main(program: str, path: str) -> None:
    """Run a program in a folder of its own, its lines appended to a file."""
    capture(program, Path(path).resolve())
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        PROGRAMS[program](Path(folder))
        os.chdir("/")


if __name__ == "__main__":
    main(*sys.argv[1:])
