"""Tokens of words and keys of lines."""

import pytest
from hypothesis import given

from distinctkv.logs.tokenizer import (
    CACHED_LENGTH,
    CACHED_WORDS,
    WILD,
    Tokenizer,
    mask_id_prefixes,
    mask_numbers,
    strip_private,
    tokenize,
)
from tests.logs.strategies import hard_line

RENDERED = [
    # constant text
    ("opened", "opened"),
    ("read-only", "read-only"),
    ("Input/output", "Input/output"),
    ("rpc.statd", "rpc.statd"),
    ("error(s)", "error(s)"),
    ("can't", "can't"),
    ("z+", "z+"),
    ("workerEnv.init()", "workerEnv.init()"),
    ("md5_init()", "md5_init()"),
    ("...", "..."),
    # numbers and ids
    ("42,", "<*>,"),
    ("-3.5", "<*>"),
    ("50%", "<*>%"),
    ("0x7f3a", "<*>"),
    ("blk_-1608", "<*>"),
    ("core.2275", "core.<*>"),
    ("TCP_MISS/200", "TCP_MISS/<*>"),
    ("HTTP/1.1", "HTTP/<*>"),
    ("aB/9xQ+", "<*>"),
    ("(Worker.java:120)", "(Worker.java:<*>)"),  # a value, written out until another is seen
    ("enabled.....1", "enabled.....<*>"),
    ("ssh2", "ssh2"),  # a value, written out until another is seen
    # hosts and addresses
    ("10.0.0.1:80", "<*>:<*>"),
    ("/10.0.0.1:80", "/<*>:<*>"),
    ("00:0D:60:E9:1D:DC", "<*>"),
    ("fe80::202:b3ff:fe1e:8329", "<*>"),
    ("12:30:59", "<*>"),
    ("2005-06-17T12:30:59.5", "<*>"),
    ("www.example.com:443", "<*>:<*>"),
    ("example.com", "<*>"),
    ("<ann@example.com>", "<<*>>"),
    # paths and URLs
    ("/var/log/messages.", "<*>."),
    ("'/udev/vcs2'", "'<*>'"),
    ("C:\\Windows\\x.log,", "<*>,"),
    ("HKLM\\SOFTWARE\\x", "<*>"),
    ("a/b//c", "<*>"),
    ("android.intent.action.SCREEN_ON", "android.intent.action.SCREEN_ON"),
    ("http://a.b/c?d=e)", "<*>)"),
    ("org.apache.Some$Class", "<*>"),
    # what is assigned
    ("uid=0", "uid=<*>"),
    ("mode=none", "mode=none"),
    ("ws=Source{1000},", "ws=<*>,"),
    ("size=Rect(0,", "size=Rect(<*>,"),
    ("PSR0=1f01", "PSR0=<*>"),
    ("r24=1f01", "r24=<*>"),
    ("r00=00", "<*>=<*>"),  # constant, but its number is gone
    ("()", "(<*>)"),
    ('user="",', 'user="<*>",'),
    ('{"user":""}', '{"user":"<*>"}'),
    ("''quoted''", "''quoted''"),
    ('"""doc"""', '"""doc"""'),
    # text that was quoted with backslashes
    (r"declined\n", r"declined\n"),
    (r"declined.\r\n", r"declined.\r\n"),
    (r"declined\\n", r"declined\\n"),
    (r"refused\n\tat", r"refused\n\tat"),
    (r"7s\n", r"<*>\n"),
    (r"\"http://a.b/c\"", r"\"<*>\""),
    (r"/var/log/x.\n", r"<*>.\n"),
    (r"\"pod-7d9f\"", r"\"<*>\""),
    ("<*>", "<*>"),
]


@pytest.mark.parametrize(("word", "rendered"), RENDERED)
def test_word(word, rendered):
    found = tokenize(word)
    assert found.rendered == rendered
    assert joined(found).replace(WILD, "") == word.replace(WILD, "")


@pytest.mark.parametrize("word", ["ssh2", "Worker.java:120"])
def test_a_name_that_is_shown_is_still_a_value(word):
    assert set(tokenize(word).tokens) == {WILD}


KEYS = [
    ("", ""),
    ("   ", ""),
    ("Took 25 ms", "Took <*>"),
    ("Took 3 KB (3072 bytes) from cache", "Took <*> from cache"),
    ("delete blk_1 blk_2 blk_3", "delete <*>"),
    ("Rect(0, 0 - 720, 1208)", "Rect <*>"),
    ("session opened for user root by (uid=0)", "session opened for user <*> by uid <*>"),
    ("check pass; user unknown", "check pass user unknown"),
    ('tag="View Lock" held', "tag View\ue000Lock held"),
    ("at Fri Jun 17 07:07:00 2005", "at <*>"),
    ("at Fri, 17 Jun 2005 07:07:00 +0200 ok", "at <*> ok"),
    ("status=M Fri Jul 01 08:16:53 PDT 2005", "status M <*>"),
    ("since Wed Jan  7 10:15:39 CET 2024", "since <*>"),
    ("07 Mar 2024 10:15:39 GET /door", "<*> GET <*>"),
    ("3/7/2024 2:24 PM ok", "<*> ok"),
    ("at 99.5 Mbit/s, 2 weeks left", "at <*> left"),
    ("on May 5, 2021", "on <*>"),
    ("on 17 June 2005 at noon", "on <*> at noon"),
    ("[17/Jun/2005:07:07:00 +0200] ok", "<*> ok"),
    ("2005-06-17T07:07:00.123Z ok", "<*> ok"),
    ("May I come in", "May I come in"),
    ("read 0f ab 12 cd 34 done", "read <*> done"),
    ("be in bed", "be in bed"),
    ('by "curl/8.4.0 (x; y)" ok', "by <*> ok"),
    ("Started Session 3 of user ann.", "Started Session <*> of user <*>"),
    ("\x1b[31mERROR\x1b[0m in disk 3", "ERROR in disk <*>"),
]


@pytest.mark.parametrize(("line", "key"), KEYS)
def test_key_of_a_line(line, key):
    assert " ".join(Tokenizer().read(mask_numbers(line)).key) == key


@pytest.mark.parametrize(
    ("line", "masked"),
    [
        ("Took 25 ms on eth0", "Took 00 ms on eth0"),
        ("at 0x7f3a, 10.0.0.1", "at 00, 00.00.00.00"),
        ("md5(5) = a1b2", "md5(00) = a00"),
        ("PSR0=1f PSR12=3", "PSR0=00 PSR00=00"),
    ],
)
def test_numbers_are_masked(line, masked):
    assert mask_numbers(line) == masked


def test_letters_before_an_id_are_masked():
    one, two = map(mask_numbers, ("open abc123, a1 and eth0", "open x9, zz77 and eth0"))
    assert mask_id_prefixes(one) == mask_id_prefixes(two)


def test_every_token_has_a_position_in_the_key():
    line = Tokenizer().read("Took 25 ms, 30 ms to [1, 2, 3] end")
    assert line.positions == (0, 1, -1, 1, -1, 2, 3, 3, 3, 4)


def test_the_cache_of_words_is_bounded():
    tokenizer = Tokenizer()
    tokenizer.read("x" * (CACHED_LENGTH + 1))
    assert not tokenizer.words
    for number in range(CACHED_WORDS + 5):
        tokenizer.read(f"w{number}")
    assert len(tokenizer.words) == 5


@given(hard_line)
def test_lines_with_the_same_masked_text_have_the_same_key(line):
    masked = mask_numbers(line)
    assert Tokenizer().read(masked).key == Tokenizer().read(mask_id_prefixes(masked)).key


@given(hard_line)
def test_no_letter_of_a_line_is_lost(line):
    read = Tokenizer().read(line)
    assert len(read.texts) == len(read.literals) == len(read.positions)
    assert letters(joined(read)) == letters(line)


def joined(found):
    """The text of a word or a line from its tokens and delimiters."""
    return found.delimiters[0] + "".join(map(str.__add__, found.texts, found.delimiters[1:]))


def letters(text):
    return "".join(strip_private(text).replace(WILD, "").split())
