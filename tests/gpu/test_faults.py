"""Planted faults: every mutation of the kernels below must be caught by a comparison or a check."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import qnumba
from cuda_support import Case, check, hard
from emulator.device import SM90, emulated
from emulator.memory import PtxError
from qnumba.scheme import PRESETS, Scheme

pytestmark = pytest.mark.cuda_emulated
PACKAGE = Path(qnumba.__file__).parent / "gpu"

# Probes: what a mutation is shown. Odd addresses keep arrays on the general kernels.
ODD = (1, 1)
PROBES = {
    "int8": Case(PRESETS["int8"], (4100,)),
    "uint8": Case(PRESETS["uint8"], (4100,), "bfloat16"),
    "int4": Case(PRESETS["int4"], (4, 384)),
    "mxfp8": Case(PRESETS["mxfp8"], (4, 384)),
    "mxfp8 nearest": Case(PRESETS["mxfp8"], (4, 384), options={"scale_rounding": "nearest"}),
    "fp8 f32": Case(Scheme("E4M3", block=32, block_scale="F32"), (4, 384)),
    "nvfp4": Case(PRESETS["nvfp4"], (4, 384), "bfloat16"),
    "rectangles": Case(Scheme("Q8S", block=(3, 24), block_scale="F32"), (7, 192)),
    "general int4": Case(PRESETS["int4"], (5, 70), offsets=ODD),
    "general away": Case(PRESETS["int8"], (300,), offsets=ODD, options={"rounding": "away"}),
    "general uint8": Case(PRESETS["uint8"], (300,), offsets=ODD),
    "general e4m3": Case(PRESETS["fp8"], (300,), offsets=ODD),
    "general 3d": Case(Scheme("Q8S", block=(2, 1, 4), block_scale="F16"), (3, 5, 18), offsets=ODD),
    "packed rows": Case(Scheme("Q4S", store="packed_u32", pack_axis=1), (11, 7), offsets=ODD),
    "absmean": Case(Scheme("Q2S"), (3000,), options={"method": "absmean"}),
}

# file, what is there, what is planted, the probe that must notice
FAULTS = [
    ("eight", "fused(F(-excess), inverse, guess)", "guess", "ties"),
    ("eight", "fused(guess, scale, F(-x))", "fused(guess, scale, x)", "int4"),
    ("eight", "excess = fused(guess, scale, F(-x))", "excess = F(-fused(F(-guess), scale, x))", "fp8 f32"),
    ("eight", "int64(group) * 8 + 4)", "int64(group) * 8 + 3)", "int8"),
    ("eight", "low_half(a[2]), high_half(a[2])", "high_half(a[2]), low_half(a[2])", "nvfp4"),
    ("codes", "half_up(raw) if rule", "float_to_half(raw) if rule", "int4"),
    ("codes", "tie = fraction == U(0x400000) and U(exponent & U(1)) == U(1)",
     "tie = fraction == U(0x400000)", "halfway scales"),
    ("codes", "up = fraction > U(0x400000) if exponent == U(0) else fraction != U(0)",
     "up = fraction > U(0x400000)", "mxfp8"),
    ("codes", "F(2.0**23 + 2)", "F(2.0**23 + 1)", "nvfp4"),
    ("codes", "U(U(bits32(y) >> U(28)) & U(8))", "U(U(bits32(F(abs(y))) >> U(28)) & U(8))", "nvfp4"),
    ("codes", "step_of(y[3], point, lo)", "step_of(y[3], int32(0), lo)", "uint8"),
    ("fast", "amax = warp_largest(amax, lanes)", "amax = warp_largest(amax, lanes // 2)", "int4"),
    ("fast", "amax = warp_largest(amax, lanes)",
     "amax = warp_largest(amax, lanes) if amax > U(0) else amax", "int4"),
    ("fast", "scales[U(thread // U(lanes))] = stored", "scales[U(thread // U(lanes))] = scale", "nvfp4"),
    ("fast", "U(line * runs[10])", "U(line * runs[3])", "rectangles"),
    ("fast", "w = load(x, second if second < count else group)", "w = load(x, group)", "int8"),
    ("fast", "lo = max(lo, size)", "hi = max(hi, size)", "uint8 nan"),
    ("general", "index = scale_index(flat, geometry)\n        scale =",
     "index = scale_index(flat + 1, geometry)\n        scale =", "general int4"),
    ("general", "* CHUNK\n", "* CHUNK + 1\n", "general int4"),
    ("general", "sums[k] += sums[k + 4]", "sums[k] += sums[k + 3]", "absmean"),
    ("general", "return (number + magic) - magic", "return float64(int64(number))", "general uint8"),
    ("scalar", "if abs(ratio - rounded) >= 0.5:", "if abs(ratio - rounded) > 0.5:", "general away"),
    ("scalar", "rounded = rint(ratio)", "rounded = trunc(ratio + 0.5)", "general int4"),
    ("scalar", "- int64(mantissa_bits), int64(tiny_exponent))\n    steps = int32",
     "- int64(mantissa_bits), int64(tiny_exponent) + 1)\n    steps = int32", "general e4m3"),
    ("places", "flat = (outer * length + place) * after", "flat = (outer * length + place)", "packed rows"),
    ("places", "return flat, min(per_word, length - place)", "return flat, per_word", "packed rows"),
    ("places", "stride *= extents[axis]", "stride *= extents[axis] + 1", "general 3d"),
    ("routes", "runs.layout, runs.lanes)", "runs.layout, 2 * runs.lanes)", "rectangles"),
    ("eight", "U(U(0x7F000000)", "U(U(0x7E800000)", "mxfp8"),
    ("codes", "picked(c, d, U(0x40)), U(0x5410)", "picked(c, d, U(0x40)), U(0x1054)", "nvfp4"),
    ("numbers", "U(word >> U(4 * k)) & U(15)", "U(word >> U(4 * k)) & U(7)", "int4"),
    ("numbers", "float_of(picked(word, U(0x4B000000), U(0x7440 + k)))",
     "float_of(picked(word, U(0x4B000000), U(0x7440)))", "int8"),
]  # fmt: skip
PROBES["uint8 nan"] = PROBES["uint8"]._replace(options={"nonfinite": "clip"})
PROBES["ties"] = Case(Scheme("Q8S", block=64, block_scale="F32"), (64, 128))
PROBES["halfway scales"] = Case(PRESETS["mxfp8"], (8, 384), options={"scale_rounding": "nearest"})


def ties(seed):
    """Return numbers that lie a last place around half a step of their block's scale."""
    random = np.random.default_rng(seed)
    scale = random.uniform(1, 2, (128, 1)).astype(np.float32)
    steps = random.integers(-126, 126, (128, 64)) + np.float32(0.5)
    x = (steps * scale).astype(np.float32)
    x[:, 0] = scale[:, 0] * np.float32(127)
    return x.reshape(64, 128)


def halfway_scales(seed):
    """Return blocks whose raw scales are halfway between two powers of two."""
    random = np.random.default_rng(seed)
    most = 448 * 1.5 * np.exp2(random.integers(-20, 20, 96))[:, None]
    return (most * random.uniform(0.5, 1, (96, 32)).round(0)).astype(np.float32).reshape(8, 384)


DATA = {"ties": ties, "halfway scales": halfway_scales}


def show(device, probe):
    """Compare a probe's cases with the reference."""
    case = PROBES[probe]
    special = "nonfinite" in case.options
    for seed, magnitude in ((3, 0), (1, -20), (2, 0)):
        device.forget()
        x = hard(case.shape, seed, case.dtype, special=special, magnitude=magnitude)
        check(device, case, DATA[probe](seed) if probe in DATA else x)


@pytest.fixture
def planted(tmp_path):
    """Return the function that loads the package with a fault in it; undone afterwards."""
    modules = {name: module for name, module in sys.modules.items() if _is_ours(name)}
    path = list(qnumba.__path__)
    package = qnumba.__dict__.get("gpu")

    def plant(module, good, bad):
        shutil.copytree(PACKAGE, tmp_path / "gpu", ignore=shutil.ignore_patterns("__pycache__"))
        file = tmp_path / "gpu" / f"{module}.py"
        source = file.read_text(encoding="utf-8")
        assert good in source, f"{module} has no {good!r} to be mutated"
        file.write_text(source.replace(good, bad), encoding="utf-8")
        _forget_modules()
        qnumba.__path__.insert(0, str(tmp_path))
        importlib.invalidate_caches()
        importlib.import_module("qnumba.gpu")

    yield plant
    _forget_modules()
    qnumba.__path__[:] = path
    sys.modules.update(modules)
    if package is not None:
        qnumba.gpu = package


def _is_ours(name):
    return name == "qnumba.gpu" or name.startswith("qnumba.gpu.")


def _forget_modules():
    for name in [name for name in sys.modules if _is_ours(name)]:
        del sys.modules[name]


@pytest.mark.parametrize("probe", PROBES)
def test_the_probes_pass_without_a_fault(probe):
    with emulated(SM90) as device:
        show(device, probe)


@pytest.mark.parametrize(("module", "good", "bad", "probe"), FAULTS)
def test_a_planted_fault_is_caught(planted, module, good, bad, probe):
    planted(module, good, bad)
    with emulated(SM90) as device, pytest.raises((AssertionError, PtxError)):
        show(device, probe)
