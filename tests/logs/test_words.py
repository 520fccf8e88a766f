"""Words: what is constant and what is a value, side by side."""

import pytest

from distinctkv.logs.tokenizer import WILD, cut

SHAPES = [
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


@pytest.mark.parametrize(("word", "shape"), SHAPES)
def test_a_word_has_this_shape(word, shape):
    assert cut(word).shape == shape


@pytest.mark.parametrize(("word", "shape"), SHAPES)
def test_no_letter_of_a_word_is_lost(word, shape):
    found = cut(word)
    text = found.marks[0] + "".join(map(str.__add__, found.texts, found.marks[1:]))
    assert text.replace(WILD, "") == word.replace(WILD, "")


@pytest.mark.parametrize("word", ["ssh2", "Worker.java:120"])
def test_a_name_that_is_written_out_is_a_value_all_the_same(word):
    assert set(cut(word).tokens) == {WILD}
