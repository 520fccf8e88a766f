"""Doctests of what needs Triton are left out where there is none."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("triton") else ["src/distinctkv/kernels/*"]
