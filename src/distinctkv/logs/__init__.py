"""Templates of log lines, read from files, pipes and folders."""

from .parser import LogMatch, LogParser, LogTemplate

__all__ = ["LogMatch", "LogParser", "LogTemplate"]
