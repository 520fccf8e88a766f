"""Headers are found by their structure; the formats here are only examples of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distinctkv.logs import LogParser
from distinctkv.logs.headers import (
    Header,
    detect_header,
    exception_of,
    in_trace,
    seconds_of,
)
from distinctkv.logs.job import Job
from reproduction.data import loghub

MESSAGES = ("opened the door", "closed the door", "lost 3 packets", "user root logged in", "idle")

# What stands before the message, twice, as different as two lines of one program are.
FORMATS = {
    "syslog": ("Jun 14 15:16:01 combo sshd(pam_unix)[19939]: ", "Jul  1 05:06:07 combo kernel: "),
    "syslog, one program": ("Dec 10 06:55:46 LabSZ sshd[24200]: ",) * 2,
    "RFC 5424": (
        "<34>1 2003-10-11T22:14:15.003Z host su - ID47 - ",
        "<13>1 2003-10-11T22:14:16Z host cron.d - ID1 - ",
    ),
    "RFC 5424 with all its parts": (
        '<34>1 2003-10-11T22:14:15.003Z host su 411 ID47 [a@1 k="] " i="2"][b@2] ',
        "<13>1 2003-10-11T22:14:16+02:00 other cron 12 - - \ufeff",
        "<191>1 - - web - TCPIN [c@3] ",
    ),
    "colours": (
        "\x1b[90m2025-03-14 10:00:07\x1b[0m \x1b[32mINFO\x1b[0m ",
        "\x1b[90m2025-03-14 10:00:09\x1b[0m \x1b[1;31mERROR\x1b[0m ",
    ),
    "colours of Rust": (
        "\x1b[2m2025-03-14T10:00:07.1Z\x1b[0m \x1b[32m INFO\x1b[0m \x1b[2mapp::net:\x1b[0m ",
        "\x1b[2m2025-03-14T10:00:09.2Z\x1b[0m \x1b[33m WARN\x1b[0m \x1b[2mapp::disk:\x1b[0m ",
    ),
    "Elasticsearch": (
        "[2025-03-14T10:00:07,123][INFO ][o.e.c.m.MetadataService  ] [node-1] ",
        "[2025-03-14T10:00:08,001][WARN ][o.e.n.Node               ] [node-2] ",
    ),
    "Rails": (
        "I, [2025-03-14T10:00:07.123456 #1201]  INFO -- : ",
        "W, [2025-03-14T10:00:08.123456 #1202]  WARN -- : ",
    ),
    "Apache 2.4": (
        "[Fri Mar 14 10:00:07.123456 2025] [core:error] [pid 120:tid 1401] ",
        "[Fri Mar 14 10:00:08.001456 2025] [ssl:warn] [pid 121:tid 1409] ",
    ),
    "kernel": ("[    0.000000] ", "[12345.678901] "),
    "journal": ("2024-05-01T10:00:00+02:00 box app[7]: ", "2024-05-01T10:00:01+02:00 box su[9]: "),
    "log4j": (
        "2015-10-18 18:01:47,978 INFO [main] org.apache.hadoop.App: ",
        "2015-10-18 18:01:48,963 WARN [IPC Server handler 19] org.apache.hadoop.Client: ",
    ),
    "log4j with dashes": (
        "2015-07-29 17:41:44,747 - INFO  [QuorumPeer[myid=1]/0:0:0:0:2181:Fast@774] - ",
        "2015-07-29 19:04:12,394 - WARN  [/10.10.34.11:3888:Manager@493] - ",
    ),
    "logback": ("12:34:56.789 [main] DEBUG c.e.Class - ", "12:34:57.001 [pool-1] INFO c.e.Door - "),
    "Spring Boot": (
        "2020-01-01 00:00:00.000  INFO 1234 --- [           main] o.s.web.Class   : ",
        "2020-01-01 00:00:02.100  WARN 1234 --- [  nio-8080-exec] o.s.web.Context : ",
        "2020-01-01 00:00:02.123  INFO 1234 --- [           main] o.a.[Door].[/]  : ",
    ),
    "threads in brackets": (
        "10:46:16,981 INFO  [org.jboss.as] (MSC service thread 1-3) ",
        "10:46:17,002 WARN  [org.jboss.net] (Server Thread Pool -- 75) ",
    ),
    "bracket to bracket": (
        "[2025-03-14T10:00:07.123+0000][87.916s][info][gc] ",
        "[2025-03-14T10:00:08.001+0000][88.794s][warn][gc,heap] ",
    ),
    "central Europe": ("2025-01-14 10:00:07.123 CET ", "2025-01-14 10:00:08.001 CET "),
    "Spark": (
        "17/06/09 20:10:40 INFO executor.CoarseBackend: ",
        "17/06/09 20:10:41 WARN spark.SecurityManager: ",
    ),
    "Android": (
        "03-17 16:13:38.811  1702  2395 D WindowManager: ",
        "03-17 16:13:38.819  1702  8671 I PowerManagerService: ",
        "03-17 16:13:38.901  2227  2227 V StatusBar: ",
    ),
    "pipes": (
        "20171223-22:15:29:606|Step_LSC|30002312|",
        "20171223-22:15:29:615|Step_StandReportReceiver|30002312|",
    ),
    "times without zeros": (
        "20240103-0:7:20:44|door|17|",
        "20240103-10:12:3:4|net|17|",
        "20240103-9:1:5:601|door.lock|17|",
    ),
    "dates without zeros": ("2024-1-3 0:7:2 INFO ", "2024-11-13 10:12:13 WARN "),
    "OpenStack": (
        "nova-api.log.1.2017-05-16_13:53:08 2017-05-16 00:00:00.008 25746 INFO nova.api.server "
        "[req-38101a0b 113d3a - - -] ",
        "nova-compute.log.1.2017-05-16_13:55:31 2017-05-16 00:00:04.500 2931 WARNING "
        "nova.compute.manager [req-3ea4052c - - - - -] ",
    ),
    "klog": (
        "I0917 12:34:56.789012   12345 server.go:123] ",
        "E0917 12:34:57.000001   12345 leader_election.go:7] ",
    ),
    "Python": (
        "2020-01-01 00:00:00,123 - app.door - INFO - ",
        "2020-01-01 00:00:01,456 - app.net - ERROR - ",
    ),
    "Python, basic": ("INFO:root:", "WARNING:app.net:", "ERROR:app.door:"),
    "Rust": ("[2020-01-01T00:00:00Z INFO  door::open] ", "[2020-01-01T00:00:01Z WARN  net] "),
    "nginx errors": (
        "2020/01/01 00:00:00 [error] 1234#1234: ",
        "2020/01/01 00:00:01 [notice] 77#0: ",
        "2020/01/01 00:00:02 [warn] 1234#0: ",
    ),
    "access log": (
        "10.0.0.7 - - [10/Oct/2000:13:55:36 -0700] ",
        "10.0.0.9 - frank [10/Oct/2000:13:55:37 -0700] ",
    ),
    "Apache": ("[Sun Dec 04 04:47:44 2005] [notice] ", "[Sun Dec 04 04:47:45 2005] [error] "),
    "PostgreSQL": (
        "2020-01-01 00:00:00.000 UTC [1234] LOG:  ",
        "2020-01-01 00:00:01.000 UTC [77] ERROR:  ",
    ),
    "MongoDB": (
        "2020-01-01T00:00:00.000+0000 I NETWORK  [conn1] ",
        "2020-01-01T00:00:01.000+0000 W STORAGE  [thread7] ",
    ),
    "containers": ("2020-01-01T00:00:00.000000001Z stdout F ", "2020-01-01T00:00:01Z stderr F "),
    "compose": ("web_1  | 2020-01-01 00:00:00 INFO ", "db_1   | 2020-01-01 00:00:01 WARN "),
    "notebook": ("[I 12:34:56.789 NotebookApp] ", "[W 12:34:57.001 KernelManager] "),
    "node first": (
        "- 1117838570 2005.06.03 R02-M1-N0 2005-06-03-15.42.50.675872 R02-M1-N0 RAS KERNEL INFO ",
        "- 1117838573 2005.06.03 R13-M0-NB 2005-06-03-15.42.53.276129 R13-M0-NB RAS APP FATAL ",
    ),
    "compact": ("081109 203615 148 INFO dfs.Node$Responder: ", "081109 203807 22 WARN dfs.Names: "),
    "milliseconds": ("1700000000123 INFO ", "1700000000456 WARN "),
    "time alone": ("2024-01-01 10:00:00 ", "2024-01-01 10:00:01 "),
    "time in brackets, program": (
        "[10.30 16:49:06] chrome.exe - ",
        "[10.30 16:49:07] git.exe *64 - ",
        "[10.30 16:49:08] ssh.exe - ",
    ),
}


def lines_of(starts, n=60):
    return [starts[i % len(starts)] + MESSAGES[i % len(MESSAGES)] for i in range(n)]


@pytest.mark.parametrize("name", FORMATS)
def test_the_message_is_what_is_left(name):
    lines = lines_of(FORMATS[name])
    found = detect_header(lines)
    assert found is not None
    messages, _ = found.strip(lines)
    assert set(messages) == set(MESSAGES), found.fields


def test_time_is_told_where_it_is_written_out_best():
    found = detect_header(lines_of(FORMATS["node first"]))
    _, times = found.strip(lines_of(FORMATS["node first"], 2))
    assert times == ["2005-06-03-15.42.50.675872", "2005-06-03-15.42.53.276129"]


def test_a_header_of_ones_own_may_name_colours():
    line = "\x1b[32mINFO\x1b[0m the door is open"
    assert Header("\x1b\\[32mINFO\\S+ ").strip([line])[0] == ["the door is open"]


def test_lines_without_the_header_are_their_own_message():
    lines = lines_of(FORMATS["log4j"], 30)
    trace = ["java.io.IOException: gone", "\tat org.apache.Main.run(Main.java:7)"]
    found = detect_header(lines + trace * 10)
    assert found.strip(trace) == (trace, [None, None])
    assert set(found.strip(lines)[0]) == set(MESSAGES)


def test_a_line_may_lack_the_end_of_the_header():
    found = detect_header(lines_of(FORMATS["syslog"], 60))
    assert found.strip(["Jun 14 15:16:01 combo syslogd 1.4.1: restart."]) == (
        ["combo syslogd 1.4.1: restart."],
        ["Jun 14 15:16:01"],
    )


@pytest.mark.parametrize(
    "lines",
    [
        MESSAGES,
        [],
        ["", "  "],
        ["disk read error at sector 7"] * 50,
        ["Request failed: timeout"] * 50,
        ["user alice: hello", "user bob: bye"] * 20,
        ["Job 17 started at 12:00:01 by root"] * 50,
        ['{"time": "2024-01-01T00:00:00Z", "level": "info"}'] * 50,
        ["12 apples", "7 pears"] * 20,
    ],
)
def test_where_there_is_no_header_none_is_found(lines):
    assert detect_header(lines) is None


def test_a_message_that_most_lines_have_is_not_taken_for_a_header():
    lines = [f"2024-01-01 10:00:{second:02} Request failed: timeout" for second in range(60)]
    assert set(detect_header(lines).strip(lines)[0]) == {"Request failed: timeout"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("2024-01-01 12:30:00 5 7 9", "5 7 9"),
        ("10:00:01 [job 7 finished]", "[job 7 finished]"),
        ("INFO 200", "200"),
    ],
)
def test_a_message_is_not_taken_for_the_end_of_the_header(line, message):
    assert detect_header([line] * 60).strip([line])[0] == [message]


def test_words_with_a_colon_and_nothing_after_it_are_messages():
    lines = [f"10:00:01 {word}:" for word in ("started", "stopped", "failed")] * 20
    assert set(detect_header(lines).strip(lines)[0]) == {"started:", "stopped:", "failed:"}


def test_a_line_of_nothing_but_a_time_is_a_message():
    assert detect_header(["2024-01-01 12:30:00"] * 60) is None


def test_a_long_row_of_numbers_is_a_message():
    numbers = f"{'7 ' * 600}end"
    lines = [f"12:30:{second:02} {numbers}" for second in range(60)]
    assert set(detect_header(lines).strip(lines)[0]) == {numbers}


def test_a_regular_expression_may_say_what_the_message_is():
    header = Header(r"\[(?P<time>[^]]+)\] (?P<message>.*) \(\d+\)$")
    assert header.strip(["[9:00] door opened (7)", "else"]) == (
        ["door opened", "else"],
        ["9:00", None],
    )


def test_without_groups_the_message_is_what_follows():
    assert Header("# ").strip(["# up", "down"]) == (["up", "down"], ["", None])
    assert not Header("# ").has_time


@given(st.lists(st.text(max_size=60), max_size=20))
def test_any_lines_can_be_looked_at(lines):
    found = detect_header(lines)
    if found is not None:
        messages, times = found.strip(lines)
        assert len(messages) == len(times) == len(lines)
        assert all(line.endswith(message) for line, message in zip(lines, messages, strict=True))


@pytest.mark.data
@pytest.mark.parametrize("system", loghub.SYSTEMS)
def test_on_real_logs_the_message_is_the_one_of_the_truth(system):
    if system not in loghub.present():
        pytest.skip(f"{system} is not there")
    log = loghub.load(system)
    messages, _ = detect_header(log.raw[:1000]).strip(log.raw)
    same = sum(ours.split() == true.split() for ours, true in zip(messages, log.lines, strict=True))
    assert same / len(log) > 0.99


KINDS = {  # lines of formats, the message of the last one, its time and its level
    "klog": (
        "W0501 10:00:{n:02}.123456    {n} server.go:12{n}] door {n} opened",
        ("door 9 opened", "0501 10:00:09.123456", "warning"),
    ),
    "access": (
        '10.0.0.{n} - ann [01/May/2024:10:00:{n:02} +0000] "GET /door/{n}?a={n} HTTP/1.1" 200 {n}7',
        ('"GET /door/9?a=9 HTTP/1.1" 200 97', "01/May/2024:10:00:09 +0000", "info"),
    ),
    "coloured": (
        "\x1b[2m2024-05-01 10:00:{n:02}\x1b[0m \x1b[31mERROR\x1b[0m door {n} opened",
        ("door 9 opened", "2024-05-01 10:00:09", "error"),
    ),
    "syslog": (
        "<34>1 2024-05-01T10:00:{n:02}Z host app {n} - - door {n} opened",
        ("door 9 opened", "2024-05-01T10:00:09Z", "critical"),
    ),
    "letters": (
        "05-01 10:00:{n:02}.123  1{n}  2{n} E Door{n}: door {n} opened",
        ("door 9 opened", "05-01 10:00:09.123", "error"),
    ),
    "another script": (
        "2024-05-01 10:00:{n:02} INFO дверь {n} открыта",
        ("дверь 9 открыта", "2024-05-01 10:00:09", "info"),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_header_gives_time_and_level(kind):
    form, expected = KINDS[kind]
    lines = [form.format(n=n) for n in range(10)] * 10
    found = detect_header(lines).read(lines)
    assert (found.messages[-1], found.times[-1], found.levels[-1]) == expected


TRACES = (
    'Traceback (most recent call last):\n  File "a.py", line 7, in run\n    open()\nOSError: no',
    "java.io.IOException: boom\n\tat a.b.C.run(C.java:7)\n\t... 3 more\n"
    "Caused by: a.b.LostException: key\n\tat a.b.D.run(D.java:9)",
    "goroutine 7 [running]:\n\tmain.go:7 +0x1d",
    "  indented text\n",
    'Traceback (most recent call last):\n  File "a.py", line 7, in run\n    open()\n'
    "subprocess.TimeoutExpired: 3 s\n\nDuring handling of the above exception, another exception "
    "occurred:\n\nTraceback (most recent call last):\n  File 'b.py'\njinja2.TemplateNotFound: door",
)


@pytest.mark.parametrize("trace", TRACES)
def test_a_trace_belongs_to_the_line_before(trace):
    lines = [f"2024-05-01 10:00:{n:02} INFO door {n} opened" for n in range(20)]
    header = detect_header(lines)
    found = header.read([lines[0], *trace.split("\n"), lines[1], "no header"])
    assert found.messages == ["door 0 opened", "door 1 opened", "no header"]
    assert found.places == [0, trace.count("\n") + 2, trace.count("\n") + 3]
    # Without a line before it is a message of its own.
    first = trace.split("\n")[0]
    assert header.read([first]).messages == [first]
    assert header.read([first], begun=True).messages == []


def test_an_indented_error_is_a_message():
    lines = [f"2024-05-01 10:00:{n:02} INFO door {n} opened" for n in range(20)]
    indented = ["  ERROR: no key", "    [FATAL] no door", "  error: no lock", "  no error here"]
    found = detect_header(lines).read([lines[0], *indented, "  ERROR   0"])
    assert found.messages[1:] == indented[:3]
    assert found.levels[1:] == ["error", "critical", "error"]


def test_a_message_may_stand_below_its_header():
    lines = []
    for n in range(20):
        lines += ["info: House.Doors[7]", f"      Door {n} opened"]
    lines += ["fail: House.Doors[8]", "      No key", "      House.KeyException: lost"]
    lines += ["         at A.B()", "crit: House.Doors[9]"]
    found = detect_header(lines).read(lines)
    assert found.messages[-3:] == ["Door 19 opened", "No key", "crit: House.Doors[9]"]
    assert found.levels[-3:] == ["info", "error", "critical"]
    assert found.places[-3:] == [38, 40, 44]
    assert exception_of(lines[42]) == "House.KeyException"


def test_a_trace_ends_with_its_first_line_that_is_not_indented(tmp_path):
    trace = ["Traceback (most recent call last):", '  File "a.py", line 7', "TimeoutExpired: 3 s"]
    record = "2024-05-01 10:00:00 INFO door 7 opened"
    header = detect_header([record] * 20)
    # A whole trace, and one that begins in the message, cut into two reads.
    for lines in ([record, *trace], [f"{record[:24]} {trace[0]}", *trace[1:]]):
        for cut in range(1, len(lines)):
            first = header.read(lines[:cut])
            rest = header.read([*lines[cut:], "plain"], True, in_trace(lines[:cut]))
            assert [*first.messages, *rest.messages][1:] == ["plain"]
    path = tmp_path / "app.log"
    path.write_text("\n".join([record, *trace, record, *trace, "plain\n"]))
    pieces = Job([str(path)], LogParser(), header=header, chunk_size=60)
    assert [text for batch in pieces for text in batch.messages] == [record[25:]] * 2 + ["plain"]


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        ("2024-05-01 10:00:00", 1714557600),
        ("2024-05-01T12:00:00.5+02:00", 1714557600.5),
        ("2024/05/01 10:00:00,250", 1714557600.25),
        ("01/May/2024:10:00:00 +0000", 1714557600),
        ("Wed May 01 10:00:00 2024", 1714557600),
        ("1714557600", 1714557600),
        ("1714557600123", 1714557600.123),
        ("Jan  1 00:01:00", 946684860),
        ("10:00:00", None),
        ("2024-13-01 10:00:00", None),
    ],
)
def test_times_are_seconds(time, seconds):
    assert seconds_of(time) == (seconds if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    "events",
    [
        ("Started:", "Finished:", "Failed:"),
        ("started:", "finished:", "failed:"),
        ("STARTED -", "DONE -", "FAILED -"),
        ("[OK]", "[FAIL]", "[SKIP]"),
        ("[UFW BLOCK]", "[UFW ALLOW]", "[UFW AUDIT]"),
        ("Started  ", "Finished ", "Failed   "),
    ],
)
@pytest.mark.parametrize("level", ["", "INFO "])
def test_what_happened_stays_in_the_message(events, level):
    messages = [f"{events[n % 3]} test case {n}" for n in range(300)]
    lines = [f"2024-05-01 10:00:{n % 60:02} {level}{text}" for n, text in enumerate(messages)]
    assert detect_header(lines).strip(lines)[0] == messages


def test_a_first_failure_has_an_alert(tmp_path):
    path = tmp_path / "app.log"
    events = ["Started", "Finished", "Queued"] * 99 + ["Failed"]
    lines = [f"10:00:{n % 60:02} INFO {event}: job {n}\n" for n, event in enumerate(events)]
    path.write_text("".join(lines))
    job = Job([str(path)], LogParser(), detect_header=True)
    alerts = [alert for batch in job for alert in job.alerts(batch)]
    assert [one.template for one in alerts if one.number > 3] == ["Failed: job <*>"]


def test_threads_and_programs_are_no_part_of_the_message():
    for names in (["[worker-1]", "[worker-2]"], ["[main]"], ["sshd[7]:", "cron[8]:"]):
        lines = [f"2024-05-01 10:00:00 {names[n % len(names)]} job {n}" for n in range(60)]
        assert set(detect_header(lines).strip(lines)[0]) == {f"job {n}" for n in range(60)}


def test_lines_of_postgres_have_their_levels():
    texts = ["LOG:  checkpoint starting", 'ERROR:  no table "a"', "STATEMENT:  select 1"]
    lines = [f"2026-11-18 09:00:05.435 UTC [2001] {texts[n % 3]}" for n in range(60)]
    found = detect_header(lines).read(lines[:3])
    assert found.levels == ["info", "error", ""]
    assert found.messages == ["checkpoint starting", 'no table "a"', "select 1"]


def test_the_stream_of_a_container_is_no_level():
    lines = [f"2026-11-18T09:00:00.123456789Z stdout F job {n} done" for n in range(60)]
    found = detect_header(lines).read(lines)
    assert set(found.levels) == {""}
    assert found.messages[7] == "job 7 done"


def test_fields_of_the_message_are_no_header():
    text = "IN=eth0 OUT= MAC=01:00:5e:00:00:01 SRC=10.0.0.7"
    lines = [f"Nov 18 09:00:00 web-1 kernel: [37722.51392{n % 10}] {text}" for n in range(60)]
    assert set(detect_header(lines).strip(lines)[0]) == {text}
