"""The log parser on any bytes: no line is lost, refused or found under another id."""

from __future__ import annotations

from fuzz.drive import instrumented, main

with instrumented():
    from distinctkv import Concentration
    from distinctkv.logs import LogParser

POLICIES = (
    None,
    Concentration.fixed(0.3, 3),
    Concentration.surprise(0.5, base=2, gain=20),
    Concentration.fixed(1.0),
)
SEEDS = (
    b"\0user ann logged in\nuser bob logged in\nuser cas logged in\nuser dee logged in\n",
    b'\0at Fri Jun 17 07:07:00 2005 for user root: [1, 2] from /10.0.0.1:80 "a b" r24=5 md5(x)\n'
    * 3,
    b"\1a\nb\nc\nd\na\nb <*>\n\n\n\xff\xfe \0\n",
    b"\2\xee\x80\x80\xee\x80\x81\xee\x80\x82 ab 01 cd ef ...1 x=y{2} http://a.b C:\\d fe80::1\n",
    b'\3GET "curl/8 (a; b)" 3 KB 2005-06-03T10:00:00.1Z a@b.c ./x ~/y core.22 () [] {}\n',
)


def target(data: bytes) -> None:
    """The first byte chooses a policy, the rest is lines."""
    policy = POLICIES[data[0] % len(POLICIES)] if data else None
    lines = data[1:].split(b"\n")
    parser = LogParser(policy, max_line=500)
    ids = []
    for line in lines:
        match = parser.add(line)
        ids.append(match.id)
        assert len(match.parameters) >= 0
        again = parser.match(line)
        assert again is not None
        assert again.id == match.id
    rows = parser.templates()
    assert parser.seen == len(lines) == sum(row.count for row in rows) + parser.forgotten
    assert len(parser) == len(rows)
    if policy is None or not policy.bounded:
        found = [parser.match(line) for line in lines]
        assert [parser.resolve(number) for number in ids] == [match and match.id for match in found]


if __name__ == "__main__":
    main(target, SEEDS)
