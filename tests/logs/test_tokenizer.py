"""Masked lines, tokens of lines, and how a template shows them."""

from unittest.mock import patch

import pytest
from hypothesis import given

from distinctkv.logs import tokenizer
from distinctkv.logs.rendering import align
from distinctkv.logs.tokenizer import WILD, clean, mask, show, tokenize
from tests.logs.strategies import any_line, hard_line


def read(line):
    return tokenize(mask(clean(line)))


def joined(line):
    """The text of a line from its separators and literals."""
    return line.separators[0] + "".join(map(str.__add__, line.literals, line.separators[1:]))


SHOWN = [
    # constant text
    ("opened", "opened"),
    ("read-only", "read-only"),
    ("Input/output", "Input/output"),
    ("error(s)", "error(s)"),
    ("can't", "can't"),
    ("z+", "z+"),
    ("workerEnv.init()", "workerEnv.init()"),
    ("md5_init()", "md5_init()"),
    ("...", "..."),
    ("lost,retrying", "lost,retrying"),
    ("failed,4", "failed,<*>"),
    # numbers and ids
    ("42,", "<*>,"),
    ("50%", "<*>%"),
    ("0x7f3a", "<*>"),
    ("blk_-1608", "<*>"),
    ("core.2275", "core.<*>"),
    ("TCP_MISS/200", "TCP_MISS/<*>"),
    ("HTTP/1.1", "HTTP/<*>"),
    ("aB/9xQ+", "<*>"),
    ("ssh2", "ssh2"),  # a value, written out until another is seen
    # hosts and addresses
    ("10.0.0.1:80", "<*>"),
    ("/10.0.0.1:80", "/<*>"),
    ("00:0D:60:E9:1D:DC", "<*>"),
    ("de:ad:be:ef:00:11", "<*>"),
    ("fe80::202:b3ff:fe1e:8329", "<*>"),
    ("2005-06-17T12:30:59.5", "<*>"),
    ("www.example.com:443", "<*>:<*>"),
    ("example.com", "<*>"),
    ("<ann@example.com>", "<*>"),
    ("b3BlbiBzZXNhbWU+==", "<*>"),
    # paths and URLs
    ("/var/log/messages,", "<*>,"),
    ("/door?all=True&since=2024-01", "<*>"),
    ("C:\\Windows\\x.log,", "<*>,"),
    ("a/b//c", "<*>"),
    ("http://a.b/c?d=e)", "<*>)"),
    ("org.apache.Some$Class", "<*>"),
    # what is assigned
    ("uid=0", "uid=<*>"),
    ("mode=none", "mode=none"),
    ("PSR0=1f01", "PSR0=<*>"),
    # structures: one value, with their text until another is seen
    ("(3, door)", "(<*>, door)"),
    ("[conn=3, chan=7]", "[conn=<*>, chan=<*>]"),
    ("Fetch(day=3, shop=ann)", "Fetch(day=<*>, shop=ann)"),
    ("{'door': [1, {'open': None}]}", "<*>"),
    ("<Door 'front' at 0x7f3a>", "<*>"),
    ("<bound method Door.open of <Door object at 0x7f3a>>", "<*>"),
    ("'the front door'", "'<*>'"),
    ("b'open\\r\\n'", "<*>"),
    ('user="",', 'user="<*>",'),
    ("functools.partial(<f at 0x7f>, 3)", "functools.partial(<*>)"),
    # a request: the method is its verb
    ('"GET /a HTTP/1.1"', '"GET <*>"'),
    ("<*>", "<*>"),
]


@pytest.mark.parametrize(("text", "shown"), SHOWN)
def test_a_template_shows(text, shown):
    assert joined(read(f"at {text} now")) == f"at {shown} now"


KEYS = [
    # scripts without blanks
    ("ユーザーannがコード5で失敗", "ユーザー ann がコード <*> で失敗"),
    ("「ann」、接続", "「 ann 」 、 接続"),
    ("", ""),
    ("   ", ""),
    ("Took 25 ms", "Took <*>"),
    ("Took 3 KB (3072 bytes) from cache", "Took <*> from cache"),
    ("delete blk_1 blk_2 blk_3", "delete <*>"),
    ("Rect(0, 0 - 720, 1208)", "Rect <*>"),
    ("session opened for user root by (uid=0)", "session opened for user <*> by <*>"),
    ("connection from 10.0.0.1 () at noon", "connection from <*> at noon"),
    ("check pass; user unknown", "check pass ; user unknown"),
    ("> HTTP", "> HTTP"),
    ("lifetime <1 sec", "lifetime <*>"),
    ("at Fri Jun 17 07:07:00 2005", "at <*>"),
    ("at Fri, 17 Jun 2005 07:07:00 +0200 ok", "at <*> ok"),
    ("status=M Fri Jul 01 08:16:53 PDT 2005", "status = M <*>"),
    ("since Wed Jan  7 10:15:39 CET 2024", "since <*>"),
    ("07 Mar 2024 10:15:39 GET /door", "<*> GET <*>"),
    ("3/7/2024 2:24 PM ok", "<*> ok"),
    ("at 99.5 Mbit/s, 2 weeks left", "at <*> left"),
    ("[17/Jun/2005:07:07:00 +0200] ok", "<*> ok"),
    ("May I come in", "May I come in"),
    ("read 0f ab 12 cd 34 done", "read <*> done"),
    ("Started Session 3 of user ann.", "Started Session <*> of user <*>"),
    ("\x1b[31mERROR\x1b[0m in disk 3", "ERROR in disk <*>"),
    ("prefetch: None", "prefetch : <*>"),
    ("from self.queue to jobs.done", "from <*> to <*>"),
    ("handler <open door 'a'> at {'b': 1}", "handler <*> at <*>"),
    ("edges=[Edge(to=1, stack=()), Edge(to=2)]", "edges = <*>"),
    ("algs: aes,des,rsa-2", "algs : <*>"),
    ("groups=adm,wheel set", "groups = <*> set"),
    ("backup finished,3 files", "backup finished <*> files"),
    ("ports a1,b2 or 7,8", "ports <*> or <*>"),
    ("open aes,des,rsa now", "open <*> now"),
    ('"Door 7" is open', "<*> is open"),
    ("[FAIL] door 7", "[ FAIL ] door <*>"),
    ("door 7 [Main]", "door <*>"),
    ("defmap: {'a': State(3),", "defmap : <*>"),  # the first of several lines
    ("ERROR java.io.IOException: boom", "ERROR java.io.IOException : boom"),
    ("could not save: DoorError: it is open", "could not save : <*>"),
    ("login of ann@shop failed", "login of <*> failed"),
]


@pytest.mark.parametrize(("line", "key"), KEYS)
def test_key_of_a_line(line, key):
    assert " ".join(read(line).key) == key


def test_fields_of_a_json_line_are_its_text_and_its_message_is_not_a_value():
    line = '{"level":"info","msg":"door 7 opened","by":{"name":"ann"}}'
    assert joined(read(line)) == '{"level":"<*>","msg":"door <*> opened","by":<*>}'


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("Took 25 ms on eth0", "Took 3 ms on eth0"),
        ("at 0x7f3a, 10.0.0.1", "at 3, 10.0.0.77"),
        ("open '/a b' and [1, 'x']", "open 'c' and ['y', {2: 'z'}]"),
        ("POST /a/b?c=d&e=f ok", "POST /a ok"),
    ],
)
def test_lines_with_other_values_have_the_same_masked_text(one, two):
    assert mask(one) == mask(two)


def test_indentation_is_compared_and_columns_are_not():
    assert read("  MAC algs").key != read("    MAC algs").key
    assert read("15s  Normal   Pulled   pod/a-1").key == read("5s   Normal   Pulled   pod/b-2").key
    assert read("took     7 ms").key == read("took 17 ms").key


@given(hard_line | any_line.filter(lambda line: isinstance(line, str)))
def test_a_line_is_what_its_tokens_and_values_give(line):
    line = clean(line)
    masked = mask(line)
    read = tokenize(masked)
    assert len(read.key) == len(read.literals) == len(read.separators) - 1
    values = align(joined(read), line)
    first, *rest = joined(read).split(WILD)
    assert values is not None
    assert first + "".join(map(str.__add__, values, rest)) == line
    assert align(show(masked), line) is not None


ZEROS = str.maketrans("123456789", "0" * 9)


@given(hard_line | any_line.filter(lambda line: isinstance(line, str)))
def test_which_digit_a_digit_is_decides_nothing(line):
    assert mask(clean(line.translate(ZEROS))) == mask(clean(line)).translate(ZEROS)


FAST = ("plain", "number", "sign")
SLOW = tokenizer.scanner({k: one for k, one in tokenizer.SCANNED.items() if k not in FAST})


@given(hard_line)
def test_kinds_that_are_tried_first_for_speed_change_nothing(line):
    found = read(line)
    with patch.object(tokenizer, "_scan", SLOW):
        assert read(line) == found


@pytest.mark.parametrize(
    "name", ["af5f4a77-750b-4c1d-9b3e-0123456789ab", "deadbeef01", "9c-a1b2-ffff"]
)
def test_ids_have_one_masked_text(name):
    assert mask(f"request {name} of [{name}], id={name}") == mask("request 7 of [7], id=7")


@pytest.mark.parametrize(
    "word", ["feedback", "decaf-bead", "deadbeef1", "facade00.txt", "effaced-2x"]
)
def test_words_of_hex_letters_are_no_ids(word):
    assert mask(f"open {word} now") != mask("open 7 now")


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("=== 3 passed ===", "========== 41 passed =========="),
        ("      |     ^~~~", "      |                 ^~~~~~~~"),
        (" src/a.py  |  12 +++---", " src/bcd.py | 3 +++++---"),
    ],
)
def test_how_long_a_line_is_drawn_is_not_compared(one, two):
    assert tokenize(mask(one)).key == tokenize(mask(two)).key


@pytest.mark.parametrize(
    ("one", "two"), [("a || b", "a | b"), ("x == y", "x = y"), ("a -- b", "a - b")]
)
def test_one_mark_and_two_are_not_the_same(one, two):
    assert tokenize(mask(one)).key != tokenize(mask(two)).key
