"""Which template keeps its id when leaves are grouped anew."""

from __future__ import annotations

from collections.abc import Callable

from .grouping import common
from .leaves import Leaf, Template
from .lines import Key


def name(groups: list[list[Leaf]], open_: Callable[[Key], Template]) -> None:
    """Put each group of leaves into one template: the oldest of those they are in, or a new one.

    A template that is left without leaves becomes part of the one that its first leaf went to.
    """
    for leaves in groups:
        leaves.sort(key=lambda leaf: leaf.first_seen)
    groups.sort(key=lambda leaves: leaves[0].first_seen)
    homes = (leaf.template for leaves in groups for leaf in leaves)
    free = {template.id: template for template in homes if template}
    firsts = {number: template.leaves[0] for number, template in free.items()}
    for leaves in groups:
        ids = [leaf.template.id for leaf in leaves if leaf.template]
        oldest = min((number for number in ids if number in free), default=None)
        key = common(leaf.key for leaf in leaves)
        template = open_(key) if oldest is None else free.pop(oldest)
        template.reshape(key, leaves)
    for number, template in free.items():
        heir = firsts[number].template
        assert heir is not None
        heir.inherit(template)
