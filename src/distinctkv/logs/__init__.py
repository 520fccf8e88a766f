"""Templates of log lines, read from files, pipes and folders."""

from .digest import Digest, digest
from .parser import LogMatch, LogParser, LogTemplate

__all__ = ["Digest", "LogMatch", "LogParser", "LogTemplate", "digest"]
