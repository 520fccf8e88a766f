"""Every kernel, compiled for Hopper without a GPU; prints facts about each, as JSON.

The interpreter takes more than the compiler does, so that only this finds some mistakes; and the
assembler has dropped products that it took for dead, which only its output shows.
"""

import json
import subprocess
from pathlib import Path
from tempfile import NamedTemporaryFile

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from distinctkv.kernels.allocate import count_leaders, lay_out, write_assignment
from distinctkv.kernels.fp16_split import prepare, split_pass
from distinctkv.kernels.independent_set import adjacency, append_slots, resolve
from distinctkv.kernels.nearest import classify, compact, exact_pass, nearest, second_pass
from distinctkv.kernels.slot_decode import search, write_and_combine
from distinctkv.kernels.slot_prefill import (
    attend_first,
    attend_mass,
    mean_and_bias,
    scatter_leaders,
    segment_sum,
)

POINTERS = {"p": "fp32", "d": "fp64", "h": "fp16", "b": "bf16", "c": "i8", "w": "i32", "q": "i64"}
NUMBERS = {"I": "i32", "F": "fp32"}
DUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
D = 128


def half(height):
    return f"tensordesc<fp16[{height},{D}]>"


def brain(*shape):
    return f"tensordesc<bf16[{','.join(map(str, shape))}]>"


SLOTS = [brain(64, D), brain(64, D)]
READ = {"D": D, "E": D, "R": 128, "T": 64}
STEP = {"G": 2, "D": D, "E": D, "T": 32, "MASS": True, "MEAN": True}
KERNELS = [  # types of the arguments in order, the constants, the options
    (prepare, "pchwI", {"D": D, "R": 64}, {}),
    (lay_out, "bccphcwwIIIIIFF", {"MASKED": True, "D": D, "R": 64}, {}),
    (nearest, [half(256), half(64), *"wwwwwIII"], {"R": 256, "T": 64}, {"num_warps": 8}),
    (classify, "wwwppwdppccwFIIII", {"D": D, "R": 256, "T": 64}, {}),
    (compact, "cwwIIII", {"R": 1024}, {}),
    (adjacency, "phwwdpwFFI", {"D": D, "R": 64, "W": 32}, {}),
    (resolve, "wwwwwcwwII", {"R": 64, "W": 32}, {}),
    (append_slots, "pwwcwphhpIII", {"D": D, "R": 32}, {}),
    (second_pass, ["h", half(64), *"wwwwpwcFII"], {"D": D, "R": 256, "T": 64}, {"num_warps": 8}),
    (
        split_pass,
        ["p", half(64), half(64), *"pwwwwcFII"],
        {"D": D, "R": 128, "T": 64},
        {"num_stages": 2},
    ),
    (exact_pass, "ppwwwwII", {"D": D, "T": 64}, {}),
    (count_leaders, "cwwI", {"R": 4096}, {}),
    (write_assignment, "ccwwcwqII", {"R": 1024}, {}),
    (
        attend_mass,
        ["b", *SLOTS, brain(64, 16), *"bbwwbFIIIIIIIIIII"],
        READ,
        {"num_warps": 8},
    ),
    (attend_first, ["b", *SLOTS, *"wwbFIIIIIII"], READ, {"num_warps": 8}),
    (scatter_leaders, "bwwbIIIIII", {"D": D, "R": 64}, {}),
    (segment_sum, "bwppIIIIIII", {"E": D, "R": 32}, {}),
    (mean_and_bias, "ppwbbFIII", {"E": D, "R": 32}, {}),
    (search, "bbbpwqpppppII", STEP | {"STAGES": 3}, {"num_warps": 2}),
    (write_and_combine, "bbbcbpwqqqqdpppppbFI", STEP | {"P": 64, "LAST": False}, {}),
]


def type_of(letter):
    if letter in POINTERS:
        return "*" + POINTERS[letter]
    return NUMBERS.get(letter, letter)


def build(kernel, types, constants, options):
    """Shared memory in bytes, and matrix products asked of and given by the assembler."""
    names = [name for name in kernel.arg_names if name not in constants]
    signature = dict(zip(names, map(type_of, types), strict=True))
    signature |= dict.fromkeys(constants, "constexpr")
    source = ASTSource(kernel, signature, constants)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    asked = made.asm["ptx"].count("wgmma.mma_async")
    with NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        said = subprocess.run(
            [DUMP, "-sass", file.name], capture_output=True, text=True, check=True
        )
    return made.metadata.shared, asked, said.stdout.count("HGMMA")


if __name__ == "__main__":
    print(json.dumps({entry[0].__name__: build(*entry) for entry in KERNELS}))
