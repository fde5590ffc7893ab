"""The fast kernels on every architecture: presets, formats, sizes around each unroll, addresses."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cuda_support import BFLOAT16, Case, check, hard
from emulator.device import SM80, SM90, SM100, SM120, TARGETS, emulated
from qnumba import reference
from qnumba.formats import SCALES, VALUES
from qnumba.layout import plan
from qnumba.params import Options
from qnumba.scheme import PRESETS, Scheme

pytestmark = pytest.mark.cuda_emulated
HALVES = ("float16", "bfloat16")
NARROW = ("float32", *HALVES)


@pytest.fixture(scope="module", params=TARGETS, ids=lambda target: f"sm_{target[0]}{target[1]}")
def any_device(request):
    with emulated(request.param) as emulator:
        yield emulator


@pytest.fixture(scope="module")
def device():
    with emulated(SM90) as emulator:
        yield emulator


def launched(device):
    """Return the names of what ran since the last call."""
    names = {name for name, *_ in device.launches}
    device.launches.clear()
    return names


@pytest.mark.parametrize("name", PRESETS)
def test_presets_on_every_architecture(any_device, name):
    shape = (130, 256) if name == "fp8_block" else (6, 384)
    for dtype in ("float32", "bfloat16"):
        any_device.forget()
        case = Case(PRESETS[name], shape, dtype, dtype, options={"nonfinite": "clip"})
        check(any_device, case, hard(shape, 2, dtype, special=True))


@pytest.mark.parametrize("target", [SM80, SM90, SM100, SM120], ids=lambda t: f"sm_{t[0]}{t[1]}")
@pytest.mark.parametrize("value", ["E4M3", "E5M2", "E2M1"])
def test_minifloats_of_every_16_bit_number(target, value):
    """A scale of 1, so that codes are those of the numbers themselves."""
    bits = np.arange(2**16, dtype=np.uint16)
    x = bits.view(BFLOAT16)
    scheme = Scheme(value, block=(1, 256), block_scale="F32")
    shape = (256, 256)
    params = reference.Params(np.ones((256, 1), np.float32))
    with emulated(target) as device:
        options = {"nonfinite": "clip"}
        case = Case(scheme, shape, "bfloat16", "float32", (0, 0), params, options)
        check(device, case, x.reshape(shape))


FUSED = [
    Case(
        Scheme(value, block=block, block_scale=scale, tensor_scale=over),
        (4, 384),
        dtype,
        dtype,
        options={"scale_rounding": rule, "nonfinite": "clip"},
    )
    for number, (value, scale) in enumerate(itertools.product(VALUES, SCALES))
    if not value.startswith("U")
    for block, dtype, rule in [
        (
            (16, 32, 64, 128)[number % 4],
            NARROW[number % 3],
            ("up", "nearest")[number % 2],
        )
    ]
    for over in [("F32", None)[number % 2] if scale in ("F16", "UE4M3") else None]
]


@pytest.mark.parametrize("case", FUSED, ids=str)
def test_blocks_in_one_pass(device, case):
    for seed, magnitude in ((1, 0), (2, -100), (3, 90)):
        device.forget()
        scaled = 0 if case.dtype == "float16" else magnitude
        x = hard(case.shape, seed, case.dtype, special=seed == 1, magnitude=scaled)
        check(device, case, x)
    assert "quantize_blocks" in launched(device)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("dtype", NARROW)
def test_lookup(device, bits, dtype):
    table = np.sort(np.random.default_rng(bits).standard_normal(2**bits)).astype(np.float32)
    table[1] = table[0]  # equal entries: the first is meant
    given = {"mode": "lookup", "table": table.tolist()}
    schemes = (
        Scheme(f"U{bits}", block=64, block_scale="F32", **given),
        Scheme(f"U{bits}", block=32, block_scale="F16", tensor_scale="F32", **given),
        Scheme(f"U{bits}", block=(2, 24), block_scale="BF16", **given),
        Scheme(f"U{bits}", **given),
    )
    launched(device)
    for scheme, magnitude in itertools.product(schemes, (0, -100)):
        device.forget()
        scaled = 0 if dtype == "float16" else magnitude
        x = hard((4, 384), 3, dtype, special=True, magnitude=scaled)
        check(device, Case(scheme, x.shape, dtype, dtype, options={"nonfinite": "clip"}), x)
    names = launched(device)
    assert {"quantize_blocks", "encode_runs", "decode_runs"} <= names
    assert not {"encode", "decode"} & names


@pytest.mark.parametrize("rule", ["up", "nearest", "floor", "even"])
def test_power_of_two_scales(device, rule):
    device.forget()
    scheme = Scheme("E4M3", block=32, block_scale="UE8M0")
    x = hard((4, 384), 5, "float32")
    x[1] = np.ldexp(np.linspace(1, 2, 384), np.arange(384) % 250 - 140)  # every exponent
    check(device, Case(scheme, x.shape, options={"scale_rounding": rule}), x)


SIZES = [8, 31, 32, 33, 63, 2047, 2048, 2049, 4100, 8192, 8200]


@pytest.mark.parametrize("size", SIZES)
def test_tensors_of_any_size(device, size):
    for scheme, dtype in (
        (Scheme("Q8S"), "float32"),
        (Scheme("U8", mode="affine"), "bfloat16"),
        (Scheme("Q2S"), "float16"),
        (Scheme("U4", mode="affine"), "float32"),
    ):
        device.forget()
        check(device, Case(scheme, (size,), dtype, dtype), hard((size,), size, dtype))


@pytest.mark.parametrize("offset", range(4))
@pytest.mark.parametrize("word_offset", [0, 1, 2, 4])
def test_any_address(device, offset, word_offset):
    for scheme in (Scheme("Q8S"), PRESETS["int4"], PRESETS["mxfp8"]):
        device.forget()
        x = hard((4, 96), 7)
        check(device, Case(scheme, x.shape, offsets=(offset, word_offset)), x)


@pytest.mark.parametrize("scheme", ["Q8S block=2x16:F32", "U8 affine block=3x24:F16", "Q4F block=24:BF16",
                                    "E4M3 block=128x128:F32", "Q2F affine block=2x64:F32"])  # fmt: skip
def test_rectangles(device, scheme):
    for shape, dtype in itertools.product([(5, 96), (3, 6, 192)], NARROW):
        device.forget()
        case = Case(Scheme.parse(scheme), shape, dtype, dtype, options={"rounding": "away"})
        check(device, case, hard(shape, 3, dtype))
        device.forget()
        check(device, case._replace(options={}), hard(shape, 4, dtype))
    assert "encode_runs" in launched(device)


@pytest.mark.parametrize("factor", [1.0, 1e-3, 30.0, 1e-30])
def test_given_scales(device, factor):
    """Also those that send numbers far past the ends of the range, and scales of 0."""
    for name in ("int8", "mxfp8", "nvfp4", "uint8"):
        device.forget()
        x = hard((4, 384), 8, "float32", special=True)
        with np.errstate(all="ignore"):
            other = (np.nan_to_num(x, posinf=1, neginf=1) * np.float32(factor)).astype(np.float32)
        params = reference.calibrate(other, plan(PRESETS[name], x.shape), Options())[0]
        case = Case(PRESETS[name], x.shape, params=params, options={"nonfinite": "clip"})
        check(device, case, x)


@pytest.mark.parametrize("value", ["E4M3", "E5M2"])
def test_kept_nan_and_infinity(device, value):
    device.forget()
    scheme = Scheme(value, block=32, block_scale="F32")
    x = hard((4, 384), 9, "float32", special=True)
    check(device, Case(scheme, x.shape, options={"nonfinite": "keep"}), x)


def test_wide_accesses_use_every_sector(device):
    device.forget()
    device.runs.clear()
    check(device, Case(PRESETS["mxfp8"], (64, 512), "bfloat16"), hard((64, 512), 1, "bfloat16"))
    run = next(run for run in device.runs if "quantize_blocks" in run.kernel.name)
    requests, sectors = run.sectors["ld", 16]
    assert sectors == 16 * requests
    assert not run.approximate
