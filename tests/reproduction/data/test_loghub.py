import numpy as np
import pytest

from reproduction.data import DataDamaged, DataMissing, loghub, windows
from tests.reproduction.data import lookalikes
from tests.reproduction.data.lookalikes import lay


def test_a_log_has_its_lines_and_the_truth_about_them(here):
    lay(here["data"], lookalikes.log("HDFS"))
    log = loghub.load("HDFS")
    assert len(log) == len(log.raw) == 2000
    assert log.raw[1] == '- 1117838630 INFO event 1, said "1"'
    assert log.lines[1] == 'event 1, said "1"'
    assert log.event_ids[1] == "E1"
    assert log.templates[1] == 'event 1, said "<*>"'
    assert log.times[1] == 1117838630


def test_the_corrected_truth_has_other_templates_for_the_same_lines(here):
    lay(here["data"], lookalikes.log("HDFS"))
    original, corrected = loghub.load("HDFS"), loghub.load_corrected("HDFS")
    assert corrected.raw == original.raw
    assert corrected.templates[1] == 'event 1, said "<number>"'


def test_the_events_of_a_log_are_a_stream(here):
    lay(here["data"], lookalikes.log("HDFS"))
    events = loghub.load("HDFS").events()
    assert events.n_distinct == 14
    assert events.names[:2] == ("E0", "E1")
    assert np.bincount(windows(events.times)).tolist() == [80] * 25


def test_any_folder_of_lines_and_truth_is_a_system(here):
    lay(here["data"], lookalikes.log("Toaster", n_lines=5))
    assert len(loghub.load("Toaster")) == 5
    assert loghub.present() == ("Toaster",)


def test_without_time_stamps_times_are_line_numbers(here):
    files = lookalikes.log("Toaster", n_lines=5)
    lay(here["data"], {name: text.replace(b"Timestamp", b"When") for name, text in files.items()})
    assert loghub.load("Toaster").times.tolist() == [0, 1, 2, 3, 4]


def test_a_last_line_may_end(here):
    files = lookalikes.log("Toaster", n_lines=5)
    name = "loghub_2k/Toaster/Toaster_2k.log"
    lay(here["data"], {**files, name: files[name] + b"\r\n"})
    assert len(loghub.load("Toaster").raw) == 5


@pytest.mark.parametrize(("system", "lines"), [("HDFS", 1999), ("Toaster", 4)])
def test_lines_and_truth_must_be_equally_many(here, system, lines):
    files = lookalikes.log(system, n_lines=lines + 1)
    name = f"loghub_2k/{system}/{system}_2k.log"
    lay(here["data"], {**files, name: files[name].rpartition(b"\n")[0]})
    with pytest.raises(DataDamaged, match=f"has {lines} lines"):
        loghub.load(system)


def test_a_known_system_has_2000_lines(here):
    lay(here["data"], lookalikes.log("HDFS", n_lines=10))
    with pytest.raises(DataDamaged, match=r"has 10 lines, .* 10; expected 2000"):
        loghub.load("HDFS")


def test_a_time_that_is_none_is_refused(here):
    files = lookalikes.log("Toaster", n_lines=2)
    lay(
        here["data"], {name: text.replace(b",1117838570", b",noon") for name, text in files.items()}
    )
    with pytest.raises(DataDamaged, match="not in seconds"):
        loghub.load("Toaster")


@pytest.mark.parametrize("name", ["../HDFS", "a/b", "", ".", "C:\\x", "a b"])
def test_a_system_is_the_name_of_a_folder(name):
    with pytest.raises(ValueError, match="name of a folder"):
        loghub.load(name)


def test_a_folder_with_another_kind_of_name_is_not_a_system(here):
    lay(here["data"], {"loghub_2k/.old/.old_2k.log": b"", "loghub_2k/Empty/Empty_2k.log": b""})
    assert loghub.present() == ()


def test_it_is_downloaded_with_its_notice(here, web, monkeypatch):
    folder, url = web
    files = lookalikes.log("HDFS")
    lay(folder, {name.partition("/")[2]: content for name, content in files.items()})
    lay(folder, {"LICENSE": b"cite us"})
    monkeypatch.setattr(loghub, "ORIGINAL", url)
    monkeypatch.setattr(loghub, "CORRECTED", url)
    assert len(loghub.load("HDFS")) == len(loghub.load_corrected("HDFS")) == 2000
    assert (here["cache"] / "loghub_2k/LICENSE").read_bytes() == b"cite us"
    assert loghub.present() == ("HDFS",)


def test_a_system_that_is_not_here_is_asked_for(here):
    with pytest.raises(DataMissing, match=r"as loghub_2k/Mac/Mac_2k\.log and https.* as loghub_2k"):
        loghub.load("Mac")
    with pytest.raises(DataMissing, match="Loghub has no such system; it has Android"):
        loghub.load("Toaster")
