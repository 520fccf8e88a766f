"""Drain3 set up to be measured: as it comes, or with the masking of its example."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

# The masking of examples/drain3.ini in Drain3's repository (MIT licence).
MASKS = (
    (r"((?<=[^A-Za-z0-9])|^)(([0-9a-f]{2,}:){3,}([0-9a-f]{2,}))((?=[^A-Za-z0-9])|$)", "ID"),
    (r"((?<=[^A-Za-z0-9])|^)(\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})((?=[^A-Za-z0-9])|$)", "IP"),
    (r"((?<=[^A-Za-z0-9])|^)([0-9a-f]{6,} ?){3,}((?=[^A-Za-z0-9])|$)", "SEQ"),
    (r"((?<=[^A-Za-z0-9])|^)([0-9A-F]{4} ?){4,}((?=[^A-Za-z0-9])|$)", "SEQ"),
    (r"((?<=[^A-Za-z0-9])|^)(0x[a-f0-9A-F]+)((?=[^A-Za-z0-9])|$)", "HEX"),
    (r"((?<=[^A-Za-z0-9])|^)([\-\+]?\d+)((?=[^A-Za-z0-9])|$)", "NUM"),
    (r"(?<=executed cmd )(\".+?\")", "CMD"),
)


def present() -> bool:
    """Whether Drain3 can be imported."""
    return find_spec("drain3") is not None


def drain3(masked: bool = False, limit: int | None = None) -> Callable[[str], dict[str, Any]]:
    """Drain3's ``add_log_message``: as it comes, with its example masking, or with a limit too."""
    if not present():
        raise ModuleNotFoundError("Drain3 is not installed; pip install 'drain3==0.9.11'")
    logging.getLogger("drain3").setLevel(logging.ERROR)
    config = import_module("drain3.template_miner_config").TemplateMinerConfig()
    if masked:
        instruction = import_module("drain3.masking").MaskingInstruction
        config.masking_instructions = [instruction(*mask) for mask in MASKS]
    config.drain_max_clusters = limit
    add: Callable[[str], dict[str, Any]] = (
        import_module("drain3").TemplateMiner(config=config).add_log_message
    )
    return add


def parse(lines: Sequence[str], masked: bool = False) -> tuple[list[int], list[str]]:
    """Group and template of each line; templates are those of the end, every mask a wildcard."""
    add = drain3(masked)
    answers = [add(line) for line in lines]
    last = {answer["cluster_id"]: answer["template_mined"] for answer in answers}
    texts = {number: re.sub("<[A-Z]+>", "<*>", text) for number, text in last.items()}
    groups = [answer["cluster_id"] for answer in answers]
    return groups, [texts[number] for number in groups]
