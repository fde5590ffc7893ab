"""X01: more than 2**31 elements. Every index in every kernel must be 64 bits wide.

The input is float16 zeros that were never written, so it takes no memory; a few numbers stand at
both sides of 2**31 and at the end. Codes and decoded numbers are written in full: 2 to 6 GiB.
"""

import os

import numpy as np
import pytest

import qnumba as qn
from qnumba.params import Options
from qnumba.scheme import Scheme

BOUNDARY = 2**31
GIB = 2**30

needs_memory = pytest.mark.skipif(
    not hasattr(os, "sysconf")
    or os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 9 * GIB,
    reason="needs 9 GiB of free memory",
)
needs_compiler = pytest.mark.skipif(
    os.environ.get("NUMBA_DISABLE_JIT", "0") != "0", reason="would take days without the compiler"
)
pytestmark = [pytest.mark.slow, needs_memory, needs_compiler]

# flat index -> number; -3 stands last, so a range that misses the end is wrong everywhere
MARKS = {0: 1.0, 5: -0.5, BOUNDARY - 1: 2.0, BOUNDARY: -1.5, BOUNDARY + 1: 0.75}


def marked(shape):
    x = np.zeros(shape, np.float16)
    flat = x.reshape(-1)
    for index, number in MARKS.items():
        flat[index] = number
    flat[-1] = -3.0
    return x


def assert_only_marks(codes, expected):
    """Every code is 0 but those of the marks."""
    flat = codes.reshape(-1)
    for index, code in expected.items():
        assert flat[index] == code, index
    assert np.count_nonzero(flat) == len(expected)


def test_X01_per_tensor():
    x = marked(BOUNDARY + 64)
    q = qn.quantize(x, "Q8S")
    assert q.scales == np.float32(3) / np.float32(127)
    codes = {index: round(number * 127 / 3) for index, number in MARKS.items()}
    assert_only_marks(q.codes(), codes | {x.size - 1: -127})
    decoded = q.dequantize(out=x)
    assert decoded[-1] == np.float16(-127 * q.scales)
    assert decoded[BOUNDARY] == np.float16(codes[BOUNDARY] * q.scales)
    assert np.count_nonzero(decoded.view(np.uint16)) == len(codes) + 1


def test_X01_blocks_and_packing():
    """Two codes of four bits in a byte: blocks of 64, one of them across the boundary's end."""
    x = marked(BOUNDARY + 70)
    q = qn.quantize(x, Scheme("Q4S", block=64, block_scale="F16", store="packed_u8"))
    assert q.scales.shape == (BOUNDARY // 64 + 2,)
    assert np.count_nonzero(q.scales) == 4
    assert q.scales[-1] == np.float16(3 / 7) or q.scales[-1] == np.nextafter(
        np.float16(3 / 7), np.float16(1)
    )
    expected = {0: 7, 5: -4, BOUNDARY - 1: 7, BOUNDARY: -7, BOUNDARY + 1: 3, x.size - 1: -7}
    # -0.5 * 7 = -3.5 and 0.75 * 7 / 1.5 = 3.5 are ties of the raw scale; stored scales are larger
    flat = q.codes()
    assert {index: int(flat[index]) for index in expected} == expected | {5: -3, BOUNDARY + 1: 3}
    assert np.count_nonzero(flat) == len(expected)


def test_X01_columns_packed_across_rows():
    """Blocks down columns, words across rows: every axis-crossing index at once."""
    rows, cols = 2**15 + 1, 2**16
    x = marked((rows, cols))
    scheme = Scheme("Q2S", block=(64, 1), block_scale="UE8M0", pack_axis=1)
    q = qn.quantize(x, scheme)
    assert q.words.shape == (-(-rows // 16), cols)
    codes = np.empty(x.shape, np.int8)
    from qnumba import cpu
    from qnumba.layout import plan

    cpu.unpack(q.words, plan(scheme, x.shape), codes)
    flat = codes.reshape(-1)
    assert flat[-1] == -1
    assert flat[BOUNDARY] == -1
    assert flat[BOUNDARY - 1] == 1
    assert set(np.flatnonzero(flat)) <= {*MARKS, x.size - 1}


def test_X01_a_sum_over_all():
    """absmean counts and adds past 2**31, and min and max of a range look at the last element."""
    from qnumba import cpu
    from qnumba.layout import plan

    x = marked(BOUNDARY + 64)
    scheme = Scheme("Q2S")
    params, seen = cpu.calibrate(x, plan(scheme, x.shape), Options(method="absmean"))
    total = sum(abs(number) for number in MARKS.values()) + 3
    assert params.scales == np.float32(total / x.size)
    assert not seen
    affine = Scheme("U8", mode="affine")
    params, _ = cpu.calibrate(x, plan(affine, x.shape), Options())
    assert params.scales == np.float32(5) / np.float32(255)
    x[-1] = np.nan
    assert cpu.calibrate(x, plan(scheme, x.shape), Options())[1]
