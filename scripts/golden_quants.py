#!/usr/bin/env python3
"""Writes tests/fixtures/quants/FORMAT.bin: random blocks of each block format of GGUF and the f32
values that they stand for, as the PyPI package `gguf` (0.19) decodes them.

    scripts/golden_quants.py

A file is all blocks, then all values, little endian; the number of blocks follows from its size.
The f16 scales and offsets take turns at zero, the smallest and the largest subnormal, the smallest
normal, plus and minus the largest finite one, and random ones; some blocks have all or none of
their other bits set. Infinite and NaN scales are left out: no quantiser writes them.
"""
import pathlib

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf.quants import dequantize

SEED = 2024
OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures/quants"
# Where the f16 fields of a block lie.
FIELDS = {
    Type.Q8_0: [0],
    Type.Q4_0: [0],
    Type.Q4_1: [0, 2],
    Type.Q5_0: [0],
    Type.Q5_1: [0, 2],
    Type.Q4_K: [0, 2],
    Type.Q5_K: [0, 2],
    Type.Q6_K: [208],
}
SPECIAL = [0x0000, 0x0001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF, 0x8001, None]


def half(rng, special):
    """The bits of a special f16, or of a random one of common size."""
    if special is not None:
        return special
    return int(np.float16(rng.uniform(-0.05, 0.05)).view(np.uint16))


def blocks(rng, kind, count):
    """`count` stored blocks, one a row."""
    size = GGML_QUANT_SIZES[kind][1]
    rows = rng.integers(0, 256, (count, size), dtype=np.uint8)
    rows[1], rows[2] = 0x00, 0xFF
    for at, row in enumerate(rows):
        for number, field in enumerate(FIELDS[kind]):
            special = SPECIAL[(at * (1 + 2 * number) + number) % len(SPECIAL)]
            row[field : field + 2] = np.array([half(rng, special)], "<u2").view(np.uint8)
    return rows


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for kind in FIELDS:
        count = 8 if GGML_QUANT_SIZES[kind][0] == 256 else 40
        rows = blocks(np.random.default_rng([SEED, int(kind)]), kind, count)
        values = np.concatenate([dequantize(row, kind) for row in rows])
        assert values.dtype == np.float32 and np.isfinite(values).all(), kind
        name = OUT / f"{kind.name.lower()}.bin"
        name.write_bytes(rows.tobytes() + values.astype("<f4").tobytes())
        print(name.relative_to(OUT.parent.parent.parent), name.stat().st_size, "bytes")


main()
