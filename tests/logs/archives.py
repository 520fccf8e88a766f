"""Text compressed in every way that can be read."""

import bz2
import gzip
import lzma

import zstandard

PACKED = {
    "plain": bytes,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}
