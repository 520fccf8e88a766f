"""The kernels, compiled for Hopper without a GPU; prints the shared memory of each."""

import json

from distinctkv.kernels.features import cut, feature, halve, raise_bars, search, settle, survey
from distinctkv.kernels.ragged_attention import (
    _collect,
    _join,
    _prepare,
    _share,
    _sum,
    _tile,
    _unite,
)
from distinctkv.kernels.reductions import absorb_rows, gather, pour_rows
from distinctkv.kernels.rotary import turn
from tests.kernels.compile import build

MADE = {  # the type, key size, rows, tile, stages
    "small": ("b", 64, 16, 64, 3),
    "large": ("b", 128, 64, 64, 3),
    "wide": ("b", 256, 16, 32, 3),
    "single": ("p", 128, 64, 32, 2),
    "single and wide": ("p", 256, 16, 32, 2),
}


def main():
    found = {}
    for name, (kind, D, M, T, stages) in MADE.items():
        sizes = {"G": 4, "E": D, "V": D}
        tile = {"D": D, "W": D, "M": M, "T": T, "STAGES": stages}
        # Queries, slots, means, counts, spans, window, padding, shares, what comes out, numbers.
        types = [*kind * 3, *"ww", *kind * 2, "*u8", *"ppp", kind, *"pFIIIIII"]
        found[name] = build(_share, types, sizes | {"P": 4} | tile, {"num_warps": 4})[0]
        rows, columns, most = _tile(D * (2 if kind == "b" else 4))
        sizes = {"G": 4, "P": 4} | tile | {"M": rows, "T": columns}
        types = [*kind * 2, *"ww", kind, "*u8", *"pFIIIIII"]
        found[f"sum {name}"] = build(_sum, types, sizes, {"num_warps": 4})[0]
        types = [*kind * 2, "*u8", *"pqpFFIIIIII"]
        sizes |= {"T": most, "READY": True}
        found[f"collect {name}"] = build(_collect, types, sizes, {"num_warps": 4})[0]
    found["unite"] = build(_unite, "pI", {"P": 8, "T": 128}, {"num_warps": 4})[0]
    found["prepare"] = build(_prepare, [*"pq", "*u8", *"pFIII"], {"G": 3, "T": 512}, {})[0]
    for W in (128, 256):
        for kernel, types, most in (
            (search, "hhppqqwwppwII", 128),
            (settle, "hhppqqwwppwcIII", 64),
        ):
            how = cut(8192, W, most)
            tile = {"W": W, "BESIDE": True, "R": how.pop("R"), "T": how.pop("T")}
            found[f"{kernel.__name__} {W}"] = build(kernel, types, tile, how)[0]
    found["halve"] = build(halve, "pcpwhhppIII", {"F": 129, "H": 128, "W": 128, "R": 32}, {})[0]
    bars = {"TIE": 0.5, "OFF": 0.5, "T": 512, "BESIDE": True}
    found["bars"] = build(raise_bars, ["p", "*i8", *"wqwpppwcwIII"], bars, {})[0]
    for H, T in ((32, 64), (64, 32)):
        tile = {"H": H, "W": H, "C": 2 * H, "X": 2 * H}
        words = {"BESIDE": True, "FIRST": True, "V": 4 * H, **tile, "T": T}
        types = [*"bbwww", "*i8", *"ppppwhhppqwIIIFF"]
        found[f"feature {H}"] = build(feature, types, words, {"num_warps": 4})[0]
        types = [*"bbwww", "*i8", *"pppIF"]
        found[f"survey {H}"] = build(survey, types, {"SUMS": True, **tile, "T": 16, "S": 512}, {})[
            0
        ]
    words = {"ALL": False, "WEIGHED": True, "ATTENDED": True}
    words |= {"D": 64, "W": 64, "C": 64, "X": 64, "T": 32}
    types = [*"bbwwppq", "*u8", *"bpwwppI"]
    found["pour"] = build(pour_rows, types, words, {})[0]
    for D in (64, 128):
        tile = {"D": D, "W": D, "C": D, "X": D, "T": 32}
        types = [*"bbwwppw", "*u8", *"wbbwwppI"]
        words = {"WEIGHED": True, "ATTENDED": True, **tile}
        found[f"absorb {D}"] = build(absorb_rows, types, words, {})[0]
    for name, D, H in (("turn", 64, 32), ("turn a part", 80, 16)):
        tile = {"D": D, "H": H, "W": H, "X": 64, "T": 64}
        found[name] = build(turn, "bppwpI", tile, {})[0]
    for kind, H in (("b", 32), ("p", 64)):
        tile = {"G": 3, "H": H, "W": H, "C": 64, "V": 64, "T": 32, "S": 512}
        types = [*kind * 2, *"pp", "*u8", *"ppIIIIIIII"]
        found[f"gather {H}"] = build(gather, types, tile, {"num_warps": H // 8})[0]
    types = [*"ppp", "b", *"pII"]
    found["join"] = build(_join, types, {"G": 4, "E": 64, "V": 64, "P": 64}, {"num_warps": 1})[0]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
