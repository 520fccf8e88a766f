"""Values of each kind that stand in log lines, different every time."""

import base64
import re
from random import Random
from uuid import UUID

NAMES = (
    *("ann", "bob", "carla", "dmitri", "eve", "farid", "grace", "hiro"),
    *("ines", "jamal", "kofi", "lena", "mei", "nils", "olga", "pavel"),
)
HOSTS = ("atlas", "borea", "ceres", "dione", "echo", "faun", "gaia", "hera")
WORDS = (
    *("amber", "birch", "cedar", "delta", "ember", "fable", "grove"),
    *("haven", "iris", "jade", "karst", "lumen", "moss", "nova"),
)
PARTS = (
    *("billing", "cart", "catalog", "checkout", "gateway", "invoice"),
    *("ledger", "mailer", "payment", "search", "stock"),
)
AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:120.0) Gecko/20100101 Firefox/120.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/119.0",
    "curl/8.4.0",
    "Go-http-client/2.0",
    "kube-probe/1.28",
)
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
VERBS = ("fetch", "load", "store", "open", "close", "merge", "update", "bind", "reset", "notify")
POOLS = {
    **{"user": NAMES, "part": PARTS, "word": WORDS, "agent": AGENTS},
    "app": ("Finder", "Mailer", "Notes", "Terminal", "Preview", "Photos", "Safe", "Player"),
    "bool": ("true", "false"),
    "currency": ("EUR", "USD", "JPY", "GBP", "CHF", "SEK", "INR"),
    "onoff": ("on", "off"),
    "state": ("IDLE", "ACTIVE", "BLOCKED", "DRAINING", "CLOSED", "FAILED"),
    "updown": ("up", "down"),
    "verb": ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"),
}


class Values(Random):
    """Values of each kind, different every time."""

    def __init__(self, seed):
        super().__init__(seed)
        self.kinds = {
            **{kind: lambda pool=pool: self.choice(pool) for kind, pool in POOLS.items()},
            "access": self.access,
            "base64": lambda: base64.b64encode(self.randbytes(self.randint(9, 40))).decode(),
            "camel": self.camel,
            "cidr": lambda: f"{self.draw('ip')}/{self.randint(8, 30)}",
            "class": lambda: (
                f"com.example.{self.choice(PARTS)}.{self.choice(PARTS).title()}Service"
            ),
            "clock": lambda: f"{self.below(24):02}:{self.below(60):02}:{self.below(60):02}",
            "comma": lambda: f"{self.below(10 ** self.randint(2, 8)):,}",
            "date": self.date,
            "dims": lambda: f"{self.randint(320, 4096)}x{self.randint(200, 2160)}",
            "dotted": lambda: (
                f"{self.choice(('com', 'org'))}.{self.choice(WORDS)}.{self.choice(PARTS)}"
            ),
            "dump": lambda: " ".join(self.hex(2) for _ in range(self.choice((8, 16)))),
            "duration": self.duration,
            "email": lambda: f"{self.choice(NAMES)}@{self.choice(PARTS)}.example.org",
            "fqdn": lambda: f"{self.choice(HOSTS)}{self.randint(1, 9)}.example.net",
            "hash": lambda: self.hex(self.choice((7, 12, 40, 64))),
            "hex": lambda: "0x" + self.hex(self.choice((2, 4, 8, 16))),
            "hex2": lambda: self.hex(2),
            "hex4": lambda: self.hex(4),
            "host": lambda: f"{self.choice(HOSTS)}-{self.randint(1, 40)}",
            "iface": lambda: f"{self.choice(('eth', 'ge-0/0/', 'Vlan', 'wlan'))}{self.below(30)}",
            "int": lambda: str(self.choice((0, 1, self.below(100), self.below(10**6)))),
            "ip": lambda: ".".join(str(self.below(256)) for _ in range(4)),
            "ip6": lambda: f"2001:db8::{self.hex(4)}:{self.hex(2)}",
            "kvlist": lambda: ",".join(
                f"{word}={self.below(9)}" for word in self.sample(WORDS, self.randint(1, 4))
            ),
            "letters": lambda: "".join(self.choices("abcdefghijklmnopqrstuvwxyz", k=8)),
            "list": lambda: ", ".join(str(self.below(99)) for _ in range(self.randint(1, 6))),
            "mac": lambda: ":".join(self.hex(2) for _ in range(6)),
            "neg": lambda: str(-self.randint(1, 99)),
            "nullable": lambda: self.choice(("null", str(self.below(1000)))),
            "obj": lambda: f"{self.draw('dotted')}.{self.choice(PARTS).title()}@{self.hex(8)}",
            "path": self.path,
            "percent": lambda: f"{self.below(100)}%",
            "phrase": lambda: " ".join(self.choices(WORDS, k=self.randint(1, 3))),
            "pod": lambda: f"{self.choice(PARTS)}-{self.hex(9)}-{self.hex(5)}",
            "port": lambda: str(self.randint(1024, 65535)),
            "real": lambda: f"{self.random() * 1000:.{self.randint(1, 6)}f}",
            "registry": lambda: "HKLM\\SOFTWARE\\" + "\\".join(self.choices(WORDS, k=3)).title(),
            "req": lambda: f"req-{self.draw('uuid')}",
            "sci": lambda: f"{self.random() * 9 + 1:.2f}e-0{self.randint(1, 9)}",
            "sid": lambda: f"S-1-5-21-{self.below(10**9)}-{self.below(10**9)}-{self.below(5000)}",
            "size": self.size,
            "stamp": lambda: f"2024-{self.randint(1, 12):02}-07T{self.draw('clock')}.123Z",
            "text": lambda: " ".join(self.choices(WORDS, k=self.randint(1, 4))),
            "thread": lambda: f"{self.choice(('pool', 'http-nio-8080-exec'))}-{self.below(99)}",
            "url": lambda: f"https://{self.choice(PARTS)}.example.com{self.path()}?id=7&page=2",
            "uuid": lambda: str(UUID(int=self.getrandbits(128))),
            "version": lambda: f"{self.below(9)}.{self.below(30)}.{self.below(9)}",
        }
        self._kind = re.compile(rf"\{{({'|'.join(self.kinds)})\}}")

    def draw(self, kind):
        return self.kinds[kind]()

    def fill(self, template, kind=None):
        return (kind or self._kind).sub(lambda found: self.draw(found[1]), template)

    def below(self, limit):
        return self.randrange(limit)

    def hex(self, length):
        return "".join(self.choices("0123456789abcdef", k=length))

    def path(self):
        steps = self.choices((*WORDS, "var", "lib", "etc", "data", "v2"), k=self.randint(2, 5))
        return "/" + "/".join(steps) + self.choice(("", ".log", ".json", ".tmp", ".conf"))

    def camel(self):
        return self.choice(VERBS) + "".join(word.title() for word in self.choices(WORDS, k=2))

    def size(self):
        number = self.choice((self.below(1000), round(self.random() * 99, 1)))
        return f"{number} {self.choice(('B', 'KB', 'MB', 'GB'))}"

    def duration(self):
        return self.choice((f"{self.below(900)}ms", f"{self.random() * 60:.2f}s", "2m30s"))

    def access(self):
        return f"{self.randint(1, 28):02}/{self.choice(MONTHS)}/2024:{self.draw('clock')} +0000"

    def date(self):
        day = f"{self.choice(DAYS)} {self.choice(MONTHS)} {self.randint(1, 28):2}"
        return f"{day} {self.draw('clock')} 2024"
