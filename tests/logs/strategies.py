"""Lines that are hard on a log parser."""

from itertools import product

from hypothesis import strategies as st

WORDS = ("open", "shut", "user", "from", "by", "the", "disk", "ann", "bob", "cas", "dee", "eve")
VALUES = ("7", "10.0.0.1:80", "/etc/hosts", "0x1f", "size=5", "(3)", "ssh2", "KB", '"a b"', "[]")
NAMES = tuple(f"{a}{b}o" for a, b in product("abcdef", repeat=2))


@st.composite
def logs(draw, most=60):
    """A few lines, each again and again with other words at one, two or any places.

    Some are the message of a line of named fields.
    """
    words = st.sampled_from(WORDS) | st.sampled_from(VALUES)
    shortest, longest = draw(st.sampled_from([(1, 3), (4, 5), (7, 9), (4, 9)]))
    line = st.lists(words, min_size=shortest, max_size=longest)
    lines = []
    for parts in draw(st.lists(line, min_size=1, max_size=3)):
        places = st.sets(st.integers(0, len(parts) - 1), min_size=1, max_size=2)
        fixed = draw(st.none() | places)
        form = draw(st.sampled_from(["{}", "{}", 'level=info msg="{}" door=7', "log='{}'"]))
        names = draw(st.sampled_from([words, words, st.sampled_from(NAMES)]))
        for _ in range(draw(st.integers(0, most))):
            other = list(parts)
            for place in fixed or draw(places):
                other[place] = draw(names)
            lines += [form.format(" ".join(other))] * draw(st.sampled_from([1, 1, 1, 15]))
    return draw(st.permutations(lines))


any_line = st.text(max_size=200) | st.binary(max_size=200)

PIECES = (
    *"=:,;|()[]{}<>@\"'%#!?*`.-/\\_+~$&\t\0\x1b\u00a0\u2028\ue000\ue001\ue002\ue004é٣",
    *(
        "a",
        "Ab",
        "be",
        "00",
        "7",
        "0x1f",
        "x86_64",
        "ssh2",
        "r24=",
        "md5(",
        "<*>",
        "...",
        "::",
        "ms",
        "msg=",
        'msg="',
        '"event": "',
    ),
    *("Jun ", "Fri Jun 17 07:07:00 2005", "17/Jun/2005:07:07:00", "2005-06-17T07:07:00.5Z"),
    *(" for user ", '"GET / HTTP/1.1"', '"curl/8.4 (x; y)"', "'two words'", "ab 01 cd ef 02"),
    *(
        "http://a.b/c?d=e",
        "ann@b.org",
        "10.0.0.1:80",
        "fe80::1",
        "C:\\x",
        "/a/b",
        "w=S{1}",
        "\x1b[3m",
    ),
)
hard_line = st.lists(st.sampled_from(PIECES) | st.just(" "), max_size=30).map("".join)
