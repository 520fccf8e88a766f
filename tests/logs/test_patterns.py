"""Which lines share a template: tables of invented lines, and the tree of keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distinctkv.logs import LogParser
from distinctkv.logs.patterns import KeyTree
from distinctkv.logs.rendering import REST
from distinctkv.logs.tokenizer import WILD, is_word

NAMES = ("ann", "bob", "cas", "dee", "eve", "fay", "gus", "hal", "ida", "joe")


def texts(lines):
    parser = LogParser()
    parser.add_many(lines)
    return {row.template for row in parser.templates()}


ONE = {  # lines of one template, and its text
    "a repr of any kind": (
        ["calling <function open at 0x7f1>", "calling <bound method Door.open of <Door 'a'>>"],
        "calling <*>",
    ),
    "keys within braces are not text": (
        ["params: {'door': 'a'}", "params: {'gate': [1, 2], 'open': None}"],
        "params: <*>",
    ),
    "a call as a value": (
        ["worker done Fetch(day=3)", "worker done Clean(day=3, level=2)"],
        "worker done <*>",
    ),
    "what an arrow points to": (
        ["kept /a/key -> house", "kept /b/key -> garden", "kept /b/key -> yard"],
        "kept <*> -> <*>",
    ),
    "nothing in brackets": (
        ["keys of 'ann' (None) checked", "keys of 'bob' (<Key 7>) checked"],
        "keys of '<*>' <*> checked",
    ),
    "nodes in a tree": (
        ["found <door: <#text: 'open'>>", "found <door: <#text: 'shut'>, <key: 7>>"],
        "found <*>",
    ),
    "structure that was cut": (
        ["got: {'doors': [{'a': [1, 'c", "got: {'a': [{'b': (2, ('x', ...", "got: [{'a': 1}]"],
        "got: <*>",
    ),
    "a name with a digit before a full stop": (
        ["the door of house1.", "the door of garden2."],
        "the door of <*>.",
    ),
    "lists of any length": (
        ["found [1]", "found ['a', 'b', 'c']", "found []"],
        "found <*>",
    ),
    "bytes in quotes": (["read line: b'QUIT\\r\\n'", "read line: b''"], "read line: <*>"),
    "nothing where others have a value": (["marker: 7", "marker: None", "marker:"], "marker:<*>"),
    "names once there are four in a longer line": (
        [f"the user-agent of {name} changed again" for name in NAMES[:4]],
        "the user-agent of <*> changed again",
    ),
    "names once there are five": (
        [f"the user-agent of {name} changed" for name in NAMES[:5]],
        "the user-agent of <*> changed",
    ),
    "three after a colon": (
        [f"state of the door: {state}" for state in ("open", "shut", "broken")],
        "state of the door: <*>",
    ),
    "three states after is": (
        [f"= door is {state}" for state in ("OPENING", "OPEN", "SHUT")],
        "= door is <*>",
    ),
    "three names in capitals": (
        [f"task 7 has status {state}" for state in ("PENDING", "DONE", "FAILED")],
        "task <*> has status <*>",
    ),
    "three values of a field": (
        [f"topic={topic} sender=ann size=7" for topic in ("doors", "gates", "keys")],
        "topic=<*> sender=ann size=<*>",
    ),
    "two names of several parts": (
        [f"read the keys of {name} again" for name in ("house_door", "garden_gate")],
        "read the keys of <*> again",
    ),
    "quotes in quotes after a phrase and a colon": (
        [f'read this text: "{word} is "x" or "y"z"' for word in NAMES[:6]],
        "read this text: <*>",
    ),
    "any text after a phrase and a colon": (
        [
            "on statement: jump 7",
            "on statement: del x y",
            "on statement: branch a, 7, 8",
            "on statement: return of x",
            "on statement: x = call y",
            "on statement: set x to y",
            "on statement: goto end",
        ],
        "on statement: <*>",
    ),
    "a query is part of the path": (
        ["GET /door HTTP/1.1 200", "GET /door?all=True&since=2024-01 HTTP/1.1 404"],
        "GET <*> HTTP/<*> <*>",
    ),
    "two places with many names each": (
        [f"player {NAMES[i]} entered zone {NAMES[-i]} again today" for i in range(len(NAMES))],
        "player <*> entered zone <*> again today",
    ),
    "two places that share their words": (
        [
            f"door moved from {before} to {after} again"
            for before, after in (("open", "shut"), ("shut", "locked"), ("locked", "open"))
        ],
        "door moved from <*> to <*> again",
    ),
    "an exception and its message": (
        ["could not save the door: DoorError: it is open", "could not save the door: OSError()"],
        "could not save the door: <*>",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_these_lines_share_a_template(name):
    lines, text = ONE[name]
    assert texts(lines) == {text}


APART = {  # lines of which each is a template
    "marks tell lines apart": ["> HTTP/1.1", "< HTTP/1.1"],
    "a colon": ["stack x", "stack: x"],
    "a prefix that all lines have": [
        f"[conn=7, chan=3] {verb} {noun}" for verb in ("Sending", "Got") for noun in ("OK", "name")
    ],
    "outcomes": ["login ok", "login failed", "login=5"],
    "two states": [f"link of eth0 is {state}" for state in ("up", "down")],
    "two states of a field": [f"door={state} keys=7" for state in ("open", "shut")],
    "what a component says": [
        f"lock[7]: {verb} the key of ann at the door" for verb in ("Accepted", "Refused")
    ],
    "components after a level": [
        f"WARN {name}: the door is open" for name in ("door_keeper", "key_store")
    ],
    "two plain words": [f"the door {verb} a key" for verb in ("has", "needs")],
    "the class of an exception at the start": [
        "ERROR java.io.IOException: boom",
        "ERROR java.lang.NullPointerException: boom",
        "Caused by: java.io.IOException: boom",
    ],
    "methods of a request": [
        f'10.0.0.1 "{verb} /a/b HTTP/1.1" 200' for verb in ("GET", "POST", "PUT", "DELETE")
    ],
    "messages in JSON": [
        f'{{"ts": 17, "level": "info", "msg": "{message}", "door": 7}}'
        for message in ("opened", "shut", "it is late", "saved", "started", "stopped", "ready", "x")
    ],
    "messages after the name of a component": [
        *("store: opened the door", "store: saved all keys", "store: no such file", "store: full"),
        *("store: waiting for keys", "store: ready", "store: stopped by a user"),
    ],
    "other scripts": ["サーバーを起動しました", "接続を閉じました"],
}


@pytest.mark.parametrize("name", APART)
def test_each_of_these_lines_is_a_template(name):
    assert len(texts(APART[name] * 3)) == len(APART[name])


STATES = ["queued", "installed", "unpacked", "half-configured", "triggers-awaited", "removed"]


def test_states_of_many_things_are_templates_in_any_order():
    names = [f"{one}-{two}" for one in NAMES for two in NAMES]
    lines = [f"status {state} {name} all 7" for name in names for state in STATES]
    assert texts(lines) == texts(lines[::-1]) == {f"status {state} <*> all <*>" for state in STATES}


TOKENS = st.sampled_from(["a", "b", ":", WILD])
KEYS = st.lists(TOKENS, min_size=1, max_size=5).map(tuple) | st.lists(TOKENS, max_size=3).map(
    lambda tokens: ("a", *tokens, ":", REST)
)


def covers(one, other):
    """The definition."""
    if one == other or len(one) != len(other) or not any(map(is_word, one)):
        return False
    return all(a == b or (a == WILD and is_word(b)) for a, b in zip(one, other, strict=True))


@given(st.sets(KEYS, max_size=12), st.data())
def test_the_tree_finds_what_a_key_covers(keys, data):
    tree = KeyTree()
    for key in keys:
        tree.add(key)
    for key in data.draw(st.sets(st.sampled_from(sorted(keys)))) if keys else ():
        tree.remove(key)
        keys = keys - {key}
    for key in keys:
        above, below = set(tree.covering(key)), set(tree.covered(key))
        assert above == {other for other in keys if key in tree.covered(other)}
        assert below == {other for other in keys if key in tree.covering(other)}
        fixed = {other for other in keys if REST not in other}
        assert REST in key or above & fixed == {other for other in fixed if covers(other, key)}
