"""A digest: all lines counted, what matters first, within its budget, every line found again."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distinctkv.logs import LogParser, digest
from distinctkv.logs.digest import Digest, DigestRow, ParsedLog, estimate_tokens

FORMS = ("text", "markdown", "json")
WORDS = ["queue", "worker", "door", "key", "cache", "disk", "router", "session", "lease", "token"]


def log(seed, n_lines, n_templates=40):
    """Lines of many templates, few of them frequent, with headers."""
    draw = random.Random(seed)
    templates = [" ".join(draw.choices(WORDS, k=draw.randint(2, 6))) for _ in range(n_templates)]
    weights = [1 / (n + 1) ** 1.5 for n in range(n_templates)]
    return [
        f"2024-05-01 10:{n // 60 % 60:02}:{n % 60:02} INFO {text} {draw.randrange(999)}"
        for n, text in enumerate(draw.choices(templates, weights, k=n_lines))
    ]


@pytest.fixture
def parsed(tmp_path):
    """A log in a file, read once."""

    def read(lines, **given):
        path = tmp_path / "app.log"
        path.write_text("".join(f"{line}\n" for line in lines))
        return ParsedLog([str(path)], **given)

    return read


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999), n_lines=st.integers(1, 300))
def test_counts_add_up_to_the_lines(seed, n_lines):
    found = digest(log(seed, n_lines))
    assert sum(row.count for row in found.rows) == found.n_lines == n_lines


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999), cut=st.integers(0, 300))
def test_two_halves_absorbed_are_one_pass(seed, cut):
    lines = log(seed, 300)
    whole, left, right = LogParser(), LogParser(), LogParser()
    whole.add_many(lines)
    left.add_many(lines[:cut])
    right.add_many(lines[cut:])
    left.absorb(right)
    tables = [sorted((r.template, r.count) for r in one.templates()) for one in (whole, left)]
    assert tables[0] == tables[1]
    assert sum(count for _, count in tables[1]) == len(lines) == left.seen


def test_every_line_is_found_again_by_the_id_of_its_template(parsed):
    lines = log(1, 500)
    found = parsed(lines)
    again = {}
    for row in found.rows():
        rows = [*found.lines_of(row.id)]
        assert (len(rows), rows[0].number, rows[-1].number) == (
            *(row.count, row.first_line, row.last_line),
        )
        again |= {one.number: one.lines for one in rows}
    assert [again[number] for number in range(1, 501)] == [[line] for line in lines]
    with pytest.raises(LookupError, match="ids are 0, 1, "):
        found.lines_of(10_000)


def test_templates_come_in_the_order_of_their_first_lines():
    rows = digest(log(2, 400)).rows
    assert [row.first_line for row in rows] == sorted(row.first_line for row in rows)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tokens", [100, 200, 1000])
def test_a_budget_of_tokens_holds_in_each_form(form, tokens):
    found = digest(log(3, 2000, 200)).fit(tokens=tokens, form=form)
    assert estimate_tokens(found.render(form)) <= tokens
    shown = len(found.detailed | found.brief)
    assert shown + len(found.hidden) == len(found.rows)
    if tokens == 1000:
        assert estimate_tokens(found.render(form)) > 500


@pytest.mark.parametrize("lines", [3, 10, 50])
def test_a_budget_of_lines_holds(lines):
    text = digest(log(3, 2000, 200), lines=lines).text()
    assert len(text.splitlines()) <= lines
    assert "not shown" in text


def test_errors_are_first_in_line_for_space_and_the_order_is_kept():
    lines = log(4, 2000, 200)
    lines[700] = "2024-05-01 10:30:00 ERROR the key is lost"
    lines[900] = "2024-05-01 10:31:00 INFO connection refused by the router"
    found = digest(lines, lines=8)
    shown = [row for row in found.rows if row.id in found.detailed | found.brief]
    assert "the key is lost" in [row.template for row in shown]
    assert "error" in {row.level for row in shown}
    assert [row.first_line for row in shown] == sorted(row.first_line for row in shown)
    without_level = digest([line[20:].split(" ", 1)[1] for line in lines], lines=4).text()
    assert "connection refused by the router" in without_level


def test_values_are_a_range_or_the_most_frequent():
    names = ["ann"] * 5 + ["bob"] * 3 + ["cas", "dee", "eve", "fay"]
    found = digest([f"user {name} has {n} files" for n, name in enumerate(names)], values=True)
    [row] = found.rows
    assert row.values == ("ann (5), bob (3), cas (1), 6 different", "0 to 11, 12 different")
    assert "<2> 0 to 11, 12 different" in found.text()


def test_continuation_lines_are_shown_with_the_line_before(parsed):
    trace = ["Traceback (most recent call last):", '  File "a.py", line 7, in run', "OSError: no"]
    lines = log(5, 50)
    lines = [*lines[:20], "2024-05-01 10:00:20 ERROR cannot run", *trace, *lines[20:]]
    found = parsed(lines)
    whole = Digest.of(found)
    assert whole.n_continued == 3
    assert sum(row.count for row in whole.rows) + whole.n_continued == whole.n_lines == len(lines)
    [row] = [row for row in whole.rows if row.template == "cannot run"]
    [one] = found.lines_of(row.id)
    assert (one.number, one.lines) == (21, lines[20:24])
    assert row.exceptions == "OSError (1)"
    assert "    with OSError (1)" in whole.text()
    last = max(row.last_line for row in whole.rows)
    assert last == len(lines)


def test_json_has_what_the_text_has():
    data = digest(log(6, 300)).data()
    assert (data["lines"], data["hidden"]) == (300, {"templates": 0, "count": 0})
    row = data["templates"][0]
    assert row["first_line"] == 1
    assert {"id", "template", "count", "level", "example", "first_time"} <= row.keys()


def test_a_table_keeps_its_cells_apart():
    found = digest(["a|b `c` is 7", "a|b `c` is 8"]).markdown()
    assert "`a\\|b 'c' is <*>`" in found


def test_what_has_one_line_is_that_line_where_there_is_room():
    lines = [f"door {n} opened" for n in range(30)] + ["key 17 of /etc/keys lost"]
    found = digest(lines)
    assert "1x [1] key 17 of /etc/keys lost (line 31)" in found.text()
    assert "1x [1] key <*> of <*> lost" in found.fit(tokens=54).text()


def test_a_single_line_has_no_colours_and_is_not_cut():
    text = "query failed: " + "SELECT a_column, " * 90 + "reason: deadlock"
    found = digest(["\x1b[31mkey 17 lost\x1b[0m", text]).text()
    assert "1x [0] key 17 lost (line 1)" in found
    assert "deadlock" in found


@pytest.mark.parametrize("given", [{"tokens": 0}, {"lines": -1}])
def test_a_budget_is_positive(given):
    with pytest.raises(ValueError, match="at least 1"):
        digest(["a"], **given)


def test_an_empty_log_has_a_digest():
    assert digest([]).text() == "lines: 0 lines, 0 templates"
    assert digest([""]).rows[0].head() == "1x [0] (empty)"


@pytest.mark.parametrize(
    ("row", "severity"),
    [("error", 2), ("critical", 2), ("warning", 1), ("info", 0), ("", 2)],
)
def test_a_level_decides_before_words(row, severity):
    text = "write failed"
    assert DigestRow(0, text, 1, 1, 1, "", "", row, text).severity == severity


def test_a_row_counts_its_levels_if_it_has_several():
    lines = [f"10:00:{n % 60:02} {('INFO', 'ERROR')[n % 5 < 2]} job {n} done" for n in range(1000)]
    found = digest(lines)
    [row] = found.rows
    assert (row.level, row.severity) == ("error", 2)
    assert "1,000x [0] ERROR (400), INFO (600) job <*> done" in found.text()
    assert "| error (400), info (600) |" in found.markdown()
    assert found.data()["templates"][0]["levels"] == {"error": 400, "info": 600}
    assert "levels" not in digest(lines[:2]).data()["templates"][0]


def test_the_rarest_exception_is_shown():
    line = "2024-05-01 10:00:00 ERROR Payment failed"
    names = [name for n, name in enumerate("ABCDE") for _ in range(9 - 2 * n)]
    found = digest([text for name in names for text in (line, f"{name}Error: no")])
    [row] = found.rows
    assert row.exceptions == "AError (9), BError (7), CError (5), EError (1), 5 different"
    few = digest([text for name in names[:-1] for text in (line, f"{name}Error: no")])
    assert few.rows[0].exceptions == "AError (9), BError (7), CError (5), DError (3)"


def test_a_template_with_a_new_exception_is_new(parsed):
    line = "2024-05-01 10:00:00 ERROR Payment failed"
    found = parsed([line, "IOError: no"] * 5 + [line, "MemoryError: no"])
    assert Digest.of(found, after=12).rows == ()
    [row] = Digest.of(found, after=10).rows
    assert (row.template, row.exceptions) == ("Payment failed", "MemoryError (1)")
    assert [row.exceptions for row in Digest.of(found, after=0).rows] == [
        "IOError (5), MemoryError (1)"
    ]


FATAL = """\
thread 'main' panicked at src/main.rs:42:10:
Segmentation fault (core dumped)
npm ERR! code ELIFECYCLE
E: Unable to locate package foo
bash: line 3: terraform: command not found
main.o: undefined reference to `run'
Killed
rsync: connection unexpectedly closed
[ERR] replica lost
Command exited with code 137
make: exit status: 2
  \u2715 adds tax (5 ms)
  \u2717 adds tax
not ok 3 - adds tax
Warning OOMKilling pod/app-7
502 Bad Gateway
BUG: soft lockup - CPU#3 stuck for 22s!
Unhandled promise rejection
*** stack smashing detected ***: terminated
error rate 0.5
10 errors
1,000 errors
error: no such file
TypeError: x is not a function"""
HARMLESS = """\
0 errors
no error
compiled without errors
error rate 0
error rate: 0.00%
errors: 0, warnings: 3
error_count=0
5 passed; 0 failed; 1 ignored
ok=3 changed=1 unreachable=0 failed=0
process exited with code 0
err=<nil>
a skilled worker
ok 3 - adds tax
\u2713 adds tax (5 ms)"""


@pytest.mark.parametrize(
    ("line", "severity"),
    [*((line, 2) for line in FATAL.split("\n")), *((line, 0) for line in HARMLESS.split("\n"))],
)
def test_errors_without_a_level_are_known_by_their_words(line, severity):
    assert digest([line]).rows[0].severity == severity
    lines = [text[20:].split(" ", 1)[1] for text in log(4, 2000, 200)]
    if severity:
        assert line.strip() in digest([*lines, line], lines=4).text()


def test_a_count_of_errors_in_several_lines_may_be_more_than_zero():
    [row] = digest([f"{n} errors" for n in range(5)]).rows
    assert row.severity == 2
