"""The one table of what is measured: the command, the gates, the suite and the page read it."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from qnumba.errors import SchemeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qnumba.params import Rounding

Op = Literal["quantize", "encode", "dequantize", "calibrate"]

OPS: dict[Op, str] = {
    "quantize": "find scales and encode",
    "encode": "encode with parameters that are given",
    "dequantize": "decode",
    "calibrate": "find scales",
}
MIB = 2**20
LARGE, CACHED = 64 * MIB, MIB  # the sizes that targets are for: from memory, in the cache
FLOOR = 0.4  # the ratio that nothing may fall below
COLUMNS = 4096
ITEM = 4  # bytes of a float32


class Case(NamedTuple):
    """One job.

    Attributes
    ----------
    name : str
        What it is called in tables; no other case has it.
    op : str
        What is done, one of ``OPS``.
    scheme : str
        Text form of the scheme.
    roofline : str
        The loops with the same traffic and no arithmetic; see ``qnumba.bench.rooflines``.
    target, target_cached : float or None
        The share of the roofline's speed to reach on one core with 64 MiB, and with 1 MiB.
    dtype : str
        Dtype of the floating-point side.
    rounding : str
        Ties of integer codes.
    rows : int
        Rows that the array has at least: blocks of several rows need as many.
    peer : str or None
        The name under which other libraries offer the same job.
    """

    name: str
    op: Op
    scheme: str
    roofline: str
    target: float = FLOOR
    target_cached: float | None = None
    dtype: str = "float32"
    rounding: Rounding = "even"
    rows: int = 1
    peer: str | None = None

    def target_at(self, nbytes: int) -> float | None:
        """Return the ratio to reach with so many bytes of floats, or None where there is none."""
        return {LARGE: self.target, CACHED: self.target_cached}.get(nbytes)

    def shape(self, nbytes: int) -> tuple[int, int]:
        """Return the shape of an array with so many bytes of floats, or just under."""
        values = max(1, nbytes // (ITEM if self.dtype == "float32" else ITEM // 2))
        columns = min(COLUMNS, max(1, values // self.rows))
        return values // columns, columns


def _given() -> list[Case]:
    """Return what encodes with parameters that are given: one pass."""
    affine = [
        Case(
            name=f"{what}{', away' if rounding == 'away' else ''}",
            op="encode",
            scheme=scheme,
            roofline="r4w1",
            target=0.95,
            target_cached=0.55,
            rounding=rounding,
            peer=peer,
        )
        for what, scheme, peer in (
            ("affine int8", "Q8F affine", "affine_int8"),
            ("affine uint8", "U8 affine", "affine_uint8"),
        )
        for rounding in ("even", "away")
    ]
    return [
        *affine,
        Case("affine uint4", "encode", "U4 affine", "r4w1", peer="affine_uint4"),
        Case("E4M3", "encode", "E4M3", "r4w1", 0.85, peer="fp8"),
        Case("E5M2", "encode", "E5M2", "r4w1", 0.85),
        Case("NVFP4, given", "encode", "nvfp4", "r4w1", 0.80, 0.28),
    ]


def _per_tensor() -> list[Case]:
    """Return what looks at the whole array first: two passes."""
    return [
        Case("min and max", "calibrate", "U8 affine", "r4", 0.90, peer="minmax"),
        Case("largest magnitude", "calibrate", "int8", "r4", 0.90, peer="absmax"),
        Case(
            "dynamic uint8", "quantize", "U8 affine", "r4+r4w1", 0.85, 0.55, peer="affine_dynamic"
        ),
        Case("dynamic int8", "quantize", "int8", "r4+r4w1", 0.85, 0.55),
        Case("dynamic E4M3", "quantize", "fp8", "r4+r4w1"),
        Case("ternary", "quantize", "ternary", "r4+r4w1"),
        Case("NVFP4", "quantize", "nvfp4", "r4+r4w1", 0.80, 0.28, peer="nvfp4"),
    ]


def _per_block() -> list[Case]:
    """Return what finds the scales of blocks and encodes: one pass."""
    blocks = [
        Case("int8, block 32, F32", "quantize", "Q8S block=32", "r4w1", 1.0, 0.40),
        Case(
            "int8, block 32, F16",
            "quantize",
            "Q8S block=32:F16",
            "r4w1",
            1.0,
            0.40,
            peer="block32_int8",
        ),
        Case(
            "int4, block 32, F16",
            "quantize",
            "Q4S block=32:F16",
            "r4w1",
            1.05,
            0.40,
            peer="block32_int4",
        ),
        Case("int2, block 64, F16", "quantize", "Q2S block=64:F16", "r4w1", 1.10),
        Case("MXFP8", "quantize", "mxfp8", "r4w1", 0.95, peer="mxfp8"),
        Case("MXFP4", "quantize", "mxfp4", "r4w1", 0.95, peer="mxfp4"),
        Case("E2M1, block 16, UE4M3", "quantize", "E2M1 block=16:UE4M3", "r4w1", 0.80, 0.28),
        Case("NF4, block 64", "quantize", "nf4", "r4w1", 0.5, peer="nf4"),
    ]
    rectangles = [
        Case(f"{what}, block {block}", "quantize", scheme, "r4w1", 0.75, rows=128, peer=peer)
        for what, block, scheme, peer in (
            ("int8", "4x32", "Q8S block=4x32", None),
            ("int8", "32x32", "Q8S block=32x32", "rect32"),
            ("E4M3", "128x128", "fp8_block", None),
        )
    ]
    return blocks + rectangles


def _from_16_bits() -> list[Case]:
    """Return what reads float16 and bfloat16."""
    jobs: tuple[tuple[str, Op, str, float], ...] = (
        ("int8, given", "encode", "int8", 0.85),
        ("int8, block 32", "quantize", "Q8S block=32", 0.70),
        ("int4, block 32", "quantize", "Q4S block=32:F16", 0.70),
    )
    return [
        Case(f"{what} of {dtype}", op, scheme, "r2w1", target, dtype=dtype)
        for dtype in ("float16", "bfloat16")
        for what, op, scheme, target in jobs
    ]


def _to_floats() -> list[Case]:
    """Return what decodes to float32."""
    return [
        Case(f"{what} to float32", "dequantize", scheme, "r1w4", target, 0.80, rows=rows, peer=peer)
        for what, scheme, target, rows, peer in (
            ("affine int8", "Q8F affine", 1.10, 1, "affine_to_float"),
            ("affine uint8", "U8 affine", 1.10, 1, "affine_to_float"),
            ("int8", "int8", 1.10, 1, None),
            ("E4M3", "fp8", FLOOR, 1, "fp8_to_float"),
            ("int8, block 32", "Q8S block=32:F16", 0.95, 1, "block32_int8_to_float"),
            ("int4, block 32", "Q4S block=32:F16", 0.95, 1, "block32_int4_to_float"),
            ("int2, block 64", "Q2S block=64:F16", 0.95, 1, None),
            ("ternary", "ternary", FLOOR, 1, None),
            ("MXFP8", "mxfp8", 0.95, 1, "mxfp8_to_float"),
            ("MXFP4", "mxfp4", 0.95, 1, "mxfp4_to_float"),
            ("NVFP4", "nvfp4", 0.95, 1, "nvfp4_to_float"),
            ("NF4, block 64", "nf4", 0.95, 1, "nf4_to_float"),
            ("int8, block 32x32", "Q8S block=32x32", 0.95, 128, None),
            ("E4M3, block 128x128", "fp8_block", 0.95, 128, None),
        )
    ]


CASES: dict[str, Case] = {
    case.name: case
    for case in (*_given(), *_per_tensor(), *_per_block(), *_from_16_bits(), *_to_floats())
}


def chosen(words: Sequence[str]) -> list[Case]:
    """Return the cases with these names or operations, in the order of the table.

    Parameters
    ----------
    words : sequence of str
        Names of cases and of operations; none at all is every case.

    Raises
    ------
    SchemeError
        If a word is neither.
    """
    for word in words:
        if word not in CASES and word not in OPS:
            fix = f"give some of {', '.join(OPS)}, or of the cases {'; '.join(CASES)}"
            message = f"{word!r} is no operation and no case of the benchmark; {fix}"
            raise SchemeError(message, field="ops", value=word, fix=fix)
    return [case for case in CASES.values() if not words or {case.name, case.op} & set(words)]


UNITS = {"B": 0, "KIB": 1, "MIB": 2, "GIB": 3}


def size_text(nbytes: int) -> str:
    """Write a number of bytes as ``1 MiB``, ``64 KiB`` or ``256 B``."""
    power = min(3, int(math.log2(max(1, nbytes))) // 10)
    return f"{nbytes / 1024**power:.4g} {('B', 'KiB', 'MiB', 'GiB')[power]}"


def parse_size(text: str) -> int:
    """Read ``64KiB``, ``1 MiB`` or ``256`` as a number of bytes, at least that of one value.

    Raises
    ------
    SchemeError
        If it is none.
    """
    found = re.fullmatch(r"(\d{1,12})\s*([KMG]I)?B?", text.strip().upper())
    nbytes = int(found[1]) * 1024 ** UNITS[f"{found[2] or ''}B"] if found else 0
    if nbytes < ITEM:
        fix = "write it as 64KiB, 1MiB or 1GiB"
        message = f"{text!r} is no size of an array of floats; {fix}"
        raise SchemeError(message, field="sizes", value=text, fix=fix)
    return nbytes
