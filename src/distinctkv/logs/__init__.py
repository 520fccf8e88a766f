"""Templates of log lines, read from files, pipes and folders."""

from .matches import LogMatch, LogTemplate
from .parser import LogParser

__all__ = ["LogMatch", "LogParser", "LogTemplate"]
