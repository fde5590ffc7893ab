"""What the assembler makes of the fast kernels: nothing spilled, wide accesses, few instructions."""

from __future__ import annotations

import pytest

import cuda_support  # noqa: F401 - skips without numba-cuda
from emulator.device import SM90, SM100
from emulator.sass import HINT, WORKS, assembled, measured, tool

pytestmark = [
    pytest.mark.cuda_emulated,
    pytest.mark.skipif(not (tool("ptxas") and tool("nvdisasm")), reason=f"needs {HINT}"),
]

# The most instructions an element that each kernel may issue on sm_90a: what it has, and little more.
MOST = {
    "int8 of float32, range": 5,
    "int8 of float32, encode": 12.5,
    "int8 to float32": 6.5,
    "int4 of float32": 15.5,
    "int4 of bfloat16": 16.5,
    "int4 to bfloat16": 9.5,
    "mxfp8 of float32": 11,
    "mxfp8 of bfloat16": 12,
    "mxfp8 to bfloat16": 14.5,
    "nvfp4 of bfloat16": 19,
    "nvfp4 to bfloat16": 11,
    "fp8_block of bfloat16, range": 10.5,
    "fp8_block of bfloat16, encode": 15,
    "nf4 of float32": 31,
    "nf4 of bfloat16": 32,
    "nf4 to bfloat16": 11,
}
BEYOND = {"nf4 of bfloat16"}  # an H200 issues more of these than it moves bytes for


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.title)
def test_kernels_are_lean(work):
    built, issued = measured(work, SM90)
    assert built.spilled == built.stack == 0
    assert not [code for code in built.opcodes if code.startswith(("LDL", "STL"))]
    assert built.occupancy >= 0.75
    wide = "STG.E.128" if " to " in work.title else "LDG.E.128"
    assert wide in built.opcodes
    assert 1 < issued <= MOST[work.title]
    assert (issued <= work.budget) is (work.title not in BEYOND)


def test_minifloats_are_converted_by_the_hardware_that_can():
    works = {work.title: work for work in WORKS}
    for title, target, text in (
        ("mxfp8 of bfloat16", SM90, "E4M3"),
        ("nvfp4 of bfloat16", SM100, "E2M1"),
    ):
        built, _ = measured(works[title], target)
        assert any("F2FP" in code and text in code for code in built.opcodes)


PTX = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry spilled(.param .u64 out, .param .u32 place)
{
    .local .align 4 .b8 held[64];
    .reg .b64 %rd<4>; .reg .b32 %r<4>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [place];
    mov.u64 %rd2, held;
    cvt.u64.u32 %rd3, %r1;
    add.u64 %rd2, %rd2, %rd3;
    st.local.u32 [%rd2], %r1;
    ld.local.u32 %r2, [held];
    st.global.u32 [%rd1], %r2;
    ret;
}
"""


def test_local_memory_shows():
    built = assembled(PTX)
    assert built.stack == 64
    assert [code for code in built.opcodes if code.startswith(("LDL", "STL"))]
    assert {line for line, _ in built.code} <= set(range(1, PTX.count("\n") + 2))
