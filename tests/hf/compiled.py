"""The kernels, compiled for Hopper without a GPU; prints the shared memory of each."""

import json

from distinctkv.hf.gathering import gather
from distinctkv.hf.ragged import _join, _share
from distinctkv.hf.receiving import NARROW, _collect, _sum
from distinctkv.hf.routing import cut, halve, search, settle
from distinctkv.hf.turning import turn
from tests.nn.compiled import build

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
        # Queries, slots, means, counts, bounds, window, padding, shares, what comes out, numbers.
        types = [*kind * 3, *"ww", *kind * 2, "*u8", *"ppp", kind, *"FFIIIIII"]
        found[name] = build(_share, types, sizes | {"P": 4} | tile, {"num_warps": 4})[0]
        sizes = {"G": 4, "P": 4} | tile | {"M": min(64, 4 * M)}
        types = [*kind * 2, *"ww", kind, "*u8", *"pFFIIIIII"]
        found[f"sum {name}"] = build(_sum, types, sizes, {"num_warps": 4})[0]
        types = [*kind * 2, "*u8", *"pppFIIIIII"]
        found[f"collect {name}"] = build(_collect, types, sizes, {"num_warps": 4})[0]
    rows, columns, warps = NARROW
    sizes = {"G": 3, "P": 1, "D": 64, "W": 64, "M": rows, "T": columns, "STAGES": 3}
    for kernel, types in ((_sum, [*"bbwwb", "*u8", *"pFFIIIIII"]),
                          (_collect, [*"bb", "*u8", *"pppFIIIIII"])):  # fmt: skip
        found[f"{kernel.__name__} narrow"] = build(kernel, types, sizes, {"num_warps": warps})[0]
    for W in (128, 256):
        for kernel, types, most in ((search, "hhppwwpwIIII", 128), (settle, "hhppwwppwcIIIII", 64)):
            how = cut(8192, W, most)
            tile = {"W": W, "BESIDE": True, "R": how.pop("R"), "T": how.pop("T")}
            found[f"{kernel.__name__} {W}"] = build(kernel, types, tile, how)[0]
    found["halve"] = build(halve, "pcpwhhppIII", {"F": 129, "H": 128, "W": 128, "R": 32}, {})[0]
    for name, D, H in (("turn", 64, 32), ("turn a part", 80, 16)):
        tile = {"D": D, "H": H, "W": H, "X": 64, "T": 64}
        found[name] = build(turn, "bppwpI", tile, {})[0]
    for kind, H in (("b", 32), ("p", 64)):
        tile = {"H": H, "W": H, "T": 64, "S": 512}
        types = [kind, *"pp", "*u8", *"pIIIII"]
        found[f"gather {H}"] = build(gather, types, tile, {"num_warps": 4})[0]
    types = [*"ppp", "b", *"II"]
    found["join"] = build(_join, types, {"G": 4, "E": 64, "V": 64, "P": 64}, {"num_warps": 1})[0]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
