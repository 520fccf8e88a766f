"""Uses of the rule on streams that are not vectors: log lines and their templates."""

from .logs import LogParser
from .parsing.matches import LogMatch, LogTemplate

__all__ = ["LogMatch", "LogParser", "LogTemplate"]
