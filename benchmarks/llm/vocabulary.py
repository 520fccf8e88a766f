"""Names, values and wordings from which contexts are made."""

from __future__ import annotations

from typing import NamedTuple

NAMES = (
    "Alice", "Bruno", "Carla", "David", "Elena", "Frank", "Greta", "Henry", "Irene", "Jonas",
    "Karen", "Louis", "Maria", "Nathan", "Olivia", "Peter", "Quentin", "Rachel", "Simon",
    "Teresa", "Ulrich", "Vera", "Walter", "Yvonne", "Zachary", "Bella", "Conrad", "Diana",
    "Edgar", "Fiona", "Gordon", "Hannah", "Isaac", "Julia", "Kevin", "Laura", "Martin",
    "Nicole", "Oliver", "Patricia", "Robert", "Sophia", "Thomas", "Ursula", "Victor", "Wendy",
    "Xavier", "Adrian", "Barbara", "Chester", "Dorothy", "Ernest", "Florence", "Gilbert",
    "Harriet", "Ivan", "Joanna", "Kenneth", "Lillian", "Matthew", "Norma", "Oscar", "Pamela",
    "Roland",
)  # fmt: skip
VALUES = (
    "apple", "river", "stone", "cloud", "tiger", "lemon", "bread", "chair", "garden",
    "silver", "window", "candle", "forest", "hammer", "pepper", "rabbit", "copper", "island",
    "bridge", "castle", "button", "desert", "dragon", "engine", "feather", "flower", "guitar",
    "honey", "jacket", "kitchen", "ladder", "marble", "needle", "orange", "palace", "pencil",
    "planet", "pocket", "potato", "ribbon", "rocket", "salmon", "shadow", "spider", "spring",
    "summer", "sunset", "temple", "ticket", "tunnel", "turtle", "valley", "velvet", "winter",
    "wolf", "yellow", "zebra", "basket", "butter", "carpet", "cherry", "coffee", "cotton",
    "crystal",
)  # fmt: skip


class Wording(NamedTuple):
    """How a fact is stated, how it is said otherwise, and the words before its value."""

    plain: str
    other: str
    cue: str


# Of 10 wordings the four that the model answered best with the full cache, where facts repeat and
# where they hide in a log. No other cache was looked at.
FACTS = (
    Wording(
        "The password of {name} is {value}.",
        "Remember that the password of {name} is {value}.",
        "The password of {name} is",
    ),
    Wording(
        "The secret word of {name} is {value}.",
        "Once more: the secret word of {name} is {value}.",
        "The secret word of {name} is",
    ),
    Wording(
        "The key for {name} is {value}.",
        "As we know, the key for {name} is {value}.",
        "The key for {name} is",
    ),
    Wording(
        "The magic word for {name} is {value}.",
        "It is said that the magic word for {name} is {value}.",
        "The magic word for {name} is",
    ),
)
# What comes between a context and the words before a value.
LEADS = (
    "\n",
    "\n\nFrom the text above: ",
    "\n\nAs stated above: ",
    "\n\nQuestion: what does the text say?\nAnswer: ",
)
NEWS = (
    Wording(
        "The password of {name} is {value}.",
        "Update: the password of {name} is now {value}.",
        "Update: the password of {name} is now",
    ),
    Wording(
        "The key for {name} is {value}.",
        "Correction: the key for {name} is now {value}.",
        "Correction: the key for {name} is now",
    ),
)
NOISE = (
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.",
    "The day was long and nothing of note took place. People went about their work as usual.",
)
KEYED = Wording("The magic word for {name} is {value}.", "", "The magic word for {name} is")
PAIRED = Wording(
    "The magic words for {name} are {value} and {second}.", "", "The magic words for {name} are"
)
EVENTS = (
    "{time} {host} sshd[{n}]: Failed password for invalid user admin from 10.0.{a}.{b} port {n}",
    "{time} {host} sshd[{n}]: Connection closed by 10.0.{a}.{b} [preauth]",
    "{time} {host} kernel: [{n}.{a}] eth0: link is up at 1000 Mbps, full duplex",
    "{time} INFO dfs.DataNode$PacketResponder: PacketResponder {a} for block blk_{n} terminating",
    "{time} INFO dfs.FSNamesystem: BLOCK* addStoredBlock: blockMap updated: 10.0.{a}.{b}:50010",
    "{time} {host} systemd[1]: Started Session {n} of user backup.",
    "{time} {host} CRON[{n}]: (root) CMD (run-parts --report /etc/cron.hourly)",
    "{time} WARN worker-{a} queue is {b} percent full, {n} jobs are waiting",
)
ALARMS = (
    Wording(
        "{time} {host} vault: The password of {name} is {value}.", "", "The password of {name} is"
    ),
    Wording("{time} {host} note: The key for {name} is {value}.", "", "The key for {name} is"),
)
# Sentences that hardly ever come twice.
TALES = (
    "The {who} walked to the {where} {when}, because the {thing} was {how}.",
    "{when}, nobody at the {where} had seen the {thing} of the {who}.",
    "A {how} {thing} lay near the {where}, and the {who} left it there {when}.",
    "The {who} asked about the {thing} and was told that the {where} is closed {when}.",
    "It was {when} when the {how} {who} came back from the {where} without a {thing}.",
)
TOLD = {
    "who": (
        "baker", "sailor", "teacher", "farmer", "doctor", "painter", "soldier", "widow", "miller",
        "judge", "student", "captain", "driver", "singer", "lawyer", "priest", "hunter", "clerk",
    ),
    "where": (
        "harbour", "market", "library", "station", "church", "mill", "tavern", "school", "bank",
        "theatre", "prison", "hospital", "museum", "stable", "lighthouse", "court", "park", "inn",
    ),
    "thing": (
        "letter", "umbrella", "lantern", "trunk", "ledger", "violin", "map", "blanket", "mirror",
        "parcel", "clock", "diary", "kettle", "barrel", "portrait", "saddle", "telescope", "rope",
    ),
    "how": (
        "broken", "heavy", "strange", "quiet", "old", "careful", "tired", "famous", "young", "poor",
        "cheerful", "angry", "clever", "lonely", "pale", "honest", "nervous", "proud",
    ),
    "when": (
        "before noon", "last week", "after the storm", "on Sunday", "at midnight", "in autumn",
        "during the fair", "that evening", "in the spring", "two years ago", "after supper",
        "before the war", "on a holiday", "at sunrise", "in the rain", "by the end of May",
    ),
}  # fmt: skip
