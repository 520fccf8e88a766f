"""Text packed in every way that can be read."""

import bz2
import gzip
import lzma
import struct

import zstandard

SKIPPED = struct.pack("<2I", 0x184D2A50, 4) + b"size"  # pzstd writes such a frame before each


PACKED = {
    "plain": bytes,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
    "UTF-16": lambda text: text.decode().encode("utf-16"),
}
