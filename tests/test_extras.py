import re
import tomllib
from pathlib import Path

from distinctkv.extras import install

ROOT = Path(__file__).parent.parent


def test_every_extra_that_a_message_names_is_one_of_the_package():
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r"\binstall\(['\"](\w+)['\"]\)", sources))
    assert {"hf", "fast"} <= named <= set(extras)


def test_a_message_serves_an_index_and_a_checkout():
    assert install("fast").startswith("pip install 'distinctkv[fast]'")
    assert "pip install '.[fast]'" in install("fast")
