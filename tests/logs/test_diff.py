"""Two logs compared: what differs is told, and chance is not."""

import json
import random

import pytest

from distinctkv.logs.diff import LogDiff, binomial_test, burstiness, read_logs
from tests.logs.test_digest import log


@pytest.fixture
def compare(tmp_path):
    """The difference of two logs."""

    def found(*logs):
        paths = [tmp_path / f"{number}.log" for number in range(2)]
        for path, lines in zip(paths, logs, strict=True):
            path.write_text("".join(f"{line}\n" for line in lines))
        return LogDiff.of(*read_logs([*map(str, paths)]))

    return found


def test_halves_of_one_shuffled_log_do_not_differ(compare):
    n_rows = []
    for seed in range(25):
        lines = log(seed, 1200, 80)
        random.Random(seed).shuffle(lines)
        found = compare(lines[:600], lines[600:])
        assert sum(row.before + row.after for row in found.rows) == len(lines)
        n_rows.append(len(found.significant))
    assert sum(map(bool, n_rows)) <= 1  # at a level of .01 for each log


def test_what_is_new_gone_more_and_less_is_told(compare):
    before, after = log(7, 1000), log(7, 1000)
    before[::50] = ["2024-05-01 10:00:00 INFO the lamp is on"] * 20
    after[::40] = ["2024-05-01 10:00:00 ERROR the key is lost"] * 25
    before[3::100] = ["2024-05-01 10:00:00 INFO bell rang twice"] * 10
    after[3::10] = ["2024-05-01 10:00:00 INFO bell rang twice"] * 100
    changes = {row.template: row for row in compare(before, after).significant}
    assert changes["the key is lost"].change == "new"
    assert changes["the key is lost"].first_line == 1
    assert changes["the lamp is on"].change == "gone"
    assert changes["bell rang twice"].change == "more"
    assert 9 < changes["bell rang twice"].ratio < 11
    back = {row.template: row for row in compare(after, before).significant}
    assert back["bell rang twice"].change == "less"


def test_one_new_line_is_told_apart_only_in_a_short_log(compare):
    new = ["2024-05-01 10:00:00 ERROR the key is lost"]
    long, short = log(8, 5000, 5), log(8, 50, 5)
    assert compare(long, long[:2500] + new).significant == ()
    assert compare(long, long[:2500] + new).rare("new") == 0  # errors are listed in any case
    [row] = compare(long, long[:2500] + new).listed
    assert (row.change, row.level, row.template) == ("new", "error", "the key is lost")
    lamp = ["2024-05-01 10:00:00 INFO the lamp is on"]
    assert compare(long, long[:2500] + lamp).listed == ()
    assert compare(long, long[:2500] + lamp).rare("new") == 1
    assert [row.change for row in compare(long, [*short, *new * 3]).significant] == ["new"]


def test_a_burst_counts_less_than_lines_that_are_spread(compare):
    quiet = log(9, 2000, 10)
    line = "2024-05-01 10:00:00 INFO bell rang twice"
    burst, spread = quiet[:], quiet[:]
    burst[500:540] = [line] * 40
    spread[::50] = [line] * 40
    before = quiet[:]
    before[::200] = [line] * 10
    assert "bell rang twice" not in [row.template for row in compare(before, burst).significant]
    assert "bell rang twice" in [row.template for row in compare(before, spread).significant]
    assert burstiness([1] * 20, [2] * 20) == 1


@pytest.mark.parametrize(
    ("before", "after", "share", "chance"),
    [(0, 0, 0.5, 1), (3, 3, 0.5, 1), (0, 3, 0.1, 0.002), (9, 1, 0.5, 22 / 1024), (7, 0, 1.0, 1)],
)
def test_the_binomial_test_is_exact(before, after, share, chance):
    assert binomial_test(before, after, share) == pytest.approx(chance)


def test_the_normal_approximation_continues_the_exact_test():
    exact, approximate = binomial_test(1050, 949, 0.5), binomial_test(1051, 950, 0.5)
    assert approximate == pytest.approx(exact, rel=0.05)


def at_levels(levels, n=1000):
    return [
        f"2024-05-01 10:00:{i % 60:02} {levels[i % len(levels)]} job {i} finished" for i in range(n)
    ]


def test_a_template_at_another_level_differs(compare):
    before, after = at_levels(["INFO"]), at_levels(["INFO", "INFO", "ERROR", "ERROR", "ERROR"])
    rows = compare(before, after).significant
    assert {(row.level, row.change, row.before, row.after) for row in rows} == {
        ("error", "new", 0, 600),
        ("info", "less", 1000, 400),
    }
    # Levels that only one log has are not compared.
    without = [line.replace("INFO ", "") for line in before]
    assert compare(before, without).significant == ()


def test_requests_that_fail_are_at_another_level(compare):
    def requests(*codes):
        return [
            f'10.0.0.7 - - [01/May/2024:10:00:{i % 60:02} +0000] "GET /door/{i} HTTP/1.1" '
            f'{codes[i % len(codes)]} {i}7 "-" "curl/8.{i}"'
            for i in range(1500)
        ]

    rows = compare(requests(200), requests(200, 500, 500, 404, 500)).significant
    changes = {(row.level, row.change) for row in rows}
    assert changes == {("error", "new"), ("warning", "new"), ("info", "less")}


def test_two_logs_are_read_with_one_header(compare):
    served = [f"info: request {n} served" for n in range(300)]
    full = [f"error: disk {n} is full" for n in range(3)]
    [row] = compare(served, [*served, *full]).listed
    assert (row.change, row.level, row.template) == ("new", "error", "disk <*> is full")
    assert compare([*served, *full], served).rare("gone") == 1


def test_a_header_that_only_one_log_has_does_not_change_the_other(compare):
    plain = [f"door {n} opened" for n in range(200)]
    headed = [f"2024-05-01 10:00:{n % 60:02} INFO {text}" for n, text in enumerate(plain)]
    assert compare(plain, headed).significant == ()
    records = [json.dumps({"msg": text, "n": 7}) for text in plain]
    assert compare(records, plain).significant == ()


def test_two_logs_of_records_have_one_message_field(compare):
    def records(*names):
        return [
            json.dumps({name: f"door {n} opened by {name}" for name in names}) for n in range(200)
        ]

    [row] = compare(records("event"), [*records("event", "msg"), *records("event")]).rows
    assert row.template == "door <*> opened by event"


def payments(*exceptions):
    lines = [
        [
            f"2024-05-01 10:00:{n % 60:02} ERROR [main] app.Pay - Payment failed for order {n}",
            f"{exceptions[n] if n < len(exceptions) else 'java.net.SocketTimeoutException'}: no",
            "\tat app.Pay.run(Pay.java:7)",
        ]
        for n in range(30)
    ]
    return [line for one in lines for line in one]


def test_a_new_exception_below_a_known_message_is_listed(compare):
    new = "java.lang.OutOfMemoryError"
    [row] = compare(payments(), payments("java.net.SocketTimeoutException", new)).listed
    assert (row.change, row.exception, row.before, row.after) == ("new", new, 0, 1)
    assert (row.template, row.first_line) == ("Payment failed for order <*>", 5)
    assert compare(payments(), payments()).listed == ()
    gone = compare(payments(new), payments())
    assert (gone.listed, gone.rare("gone")) == ((), 1)
    # Of a template that is new itself, they are told with it.
    quiet = [f"2024-05-01 10:00:01 INFO [main] app.Pay - order {n} came" for n in range(30)]
    assert [row.exception for row in compare(quiet, quiet + payments()).listed] == [""]


def test_equal_counts_are_the_same(compare):
    doors = [f"2024-05-01 10:00:00 INFO door {n} opened" for n in range(318)]
    bells = ["2024-05-01 10:00:00 INFO bell rang"]
    changes = {row.template: row.change for row in compare(doors, [*doors, *bells]).rows}
    assert changes == {"door <*> opened": "same", "bell rang": "new"}
    assert [row.change for row in compare(doors, doors).rows] == ["same"]
    changes = {row.change for row in compare(doors, [*doors, *bells * 900]).significant}
    assert changes == {"less", "new"}  # at equal counts, in a longer log


def test_the_second_log_is_read_from_its_start(compare, monkeypatch):
    monkeypatch.setattr("distinctkv.logs.job.LINES", 10)
    lines = at_levels(["INFO"])
    found = compare(lines, lines)
    assert (found.n_before, found.n_after) == (len(lines), len(lines))


def test_a_second_log_that_begins_within_a_trace_is_read_to_its_end(compare):
    lost = "2024-05-01 10:00:59 ERROR [main] app.Key - the key is lost"
    found = compare(payments(), ["\tat app.Pay.run(Pay.java:7)", *payments(), lost])
    assert "the key is lost" in [row.template for row in found.listed]
