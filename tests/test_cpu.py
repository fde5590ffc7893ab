"""The compiled kernels against the definition: every path of the loops, and how they are run."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from qnumba import Scheme, cpu, reference
from qnumba.cpu import chunks, jit, kernels, packing
from qnumba.cpu.places import KINDS
from qnumba.layout import plan
from qnumba.params import Options
from support import assert_same_bits, quantize_on

SOURCE = Path(cpu.__file__).parents[2]

SCHEMES = [
    "Q8S",
    "Q2F tensor=F16",
    "U8 affine",
    "U4 affine tensor=BF16",
    "E4M3",
    "E5M2 tensor=UE4M3",
    "E2M1",
    "U2 lookup table=-1.0,-0.25,0.5,1.0",
    "nf4",
    "Q4S block=32:F16",
    "Q4S block=32:F16 pack_axis=1",
    "Q8F block=1:F32",
    "Q4F block=7:BF16",
    "Q2S block=64:UE4M3 store=packed_u8",
    "Q8S block=16:F16 tensor=F32 store=packed_u32",
    "U8 affine block=48:F16",
    "E2M1 block=16:UE4M3 tensor=F32",
    "E2M1 block=32:UE8M0",
    "E4M3 block=4x32:UE8M0",
    "E4M3 block=128x128:F32",
    "Q8S block=32x1:F32",
    "Q4S block=5x3:F16 store=packed_u32",
    "U4 lookup table=nf4 block=300:F16",
]

SHAPES = [
    (1, 1),
    (3, 5),
    (2, 16),
    (5, 17),
    (7, 31),
    (4, 64),
    (33, 65),
    (2, 2047),
    (3, 2049),
    (1, 4100),
]


def awkward(shape, dtype, seed=0):
    """Return numbers of many sizes: ties, subnormals, both zeros, huge ones, blocks of zeros."""
    random = np.random.default_rng(seed)
    x = random.standard_normal(shape) * np.exp2(random.integers(-20, 12, shape))
    special = np.array([0.0, -0.0, 0.5, -1.5, 2.5, 1e-40, -1e-45, 1e-7, 3e4, -6e4, 127.0, 63.5])
    pick = random.random(shape)
    x = np.where(pick < 0.15, random.choice(special, shape), x)
    x[..., : shape[-1] // 4] *= random.random() < 0.5
    return x.astype(dtype)


def assert_equal_backends(x, scheme, **options):
    known = Scheme.parse(scheme)
    one, other = (quantize_on(backend, x, known, **options) for backend in (reference, cpu))
    assert_same_bits(other.params.scales, one.params.scales)
    assert other.params.global_scale == one.params.global_scale
    if one.params.zero_points is not None:
        assert_same_bits(other.params.zero_points, one.params.zero_points)
    assert_same_bits(other.words, one.words)
    assert other.nonfinite == one.nonfinite
    for dtype in (np.float32, np.float64, np.float16):
        outs = []
        for backend in (reference, cpu):
            outs.append(np.empty(x.shape, dtype))
            backend.dequantize(one.words, plan(known, x.shape), one.params, outs[-1])
        assert_same_bits(outs[1], outs[0])


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes_around_every_unroll_and_tile(scheme, shape):
    assert_equal_backends(awkward(shape, np.float32), scheme)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("dtype", [np.float64, np.float16, "bfloat16"])
def test_dtypes(scheme, dtype):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    assert_equal_backends(awkward((9, 333), dtype), scheme)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("policy", ["clip", "raise"])
def test_values_that_are_not_finite(scheme, policy):
    x = awkward((6, 200), np.float32)
    x[1, 3], x[2, 199], x[4, 0] = np.nan, np.inf, -np.inf
    x[5] = np.nan
    if policy == "clip":
        assert_equal_backends(x, scheme, nonfinite=policy)
    else:
        assert quantize_on(cpu, x, Scheme.parse(scheme)).nonfinite


@pytest.mark.parametrize("scheme", ["E4M3 block=32:UE8M0", "E5M2", "E5M2 block=5:F16", "E4M3"])
def test_minifloats_keep_what_they_can(scheme):
    x = awkward((6, 200), np.float32)
    x[1, 3], x[2, 199], x[4, 0], x[4, 1] = np.nan, np.inf, -np.inf, -np.nan
    assert_equal_backends(x, scheme, nonfinite="keep")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    "options",
    [
        {"rounding": "away"},
        {"scale_rounding": "nearest"},
        {"scale_rounding": "floor"},
        {"scale_rounding": "even"},
        {"method": "absmean"},
    ],
    ids=str,
)
def test_options(scheme, options):
    from qnumba import validate

    if validate(scheme, **options):
        pytest.skip("not an option of this scheme")
    assert_equal_backends(awkward((9, 333), np.float32), scheme, **options)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_arrays_that_threads_share(scheme):
    size = 700_000 if jit.IS_COMPILED else 3000
    rows = 7 if "x" in scheme.partition("block=")[2].partition(":")[0] else 3
    x = awkward((rows, size // rows), np.float32)
    assert_equal_backends(x, scheme)


@pytest.mark.parametrize("method", ["minmax", "absmean"])
@pytest.mark.parametrize("scheme", ["Q8S", "Q2S block=200000:F32", "E4M3 block=3x100000:F16"])
def test_large_blocks_are_measured_in_chunks(scheme, method):
    cols = 250_001 if jit.IS_COMPILED else 2500
    assert_equal_backends(awkward((5, cols), np.float32), scheme, method=method)


@pytest.mark.parametrize("block", ["2x3x4", "2x1x5x3x4", "3x2x2x2x2"])
@pytest.mark.parametrize("store", ["native", "packed_u32", "packed_u32 pack_axis=2"])
def test_blocks_of_many_axes(block, store):
    x = awkward((3, 5, 4, 6, 9), np.float32)
    assert_equal_backends(x, f"Q4S block={block}:F16 store={store}")


@pytest.mark.skipif(not jit.IS_COMPILED, reason="nothing is compiled")
def test_what_is_compiled_is_compiled_once_per_dtype_and_kind():
    """Read-only arrays, given parameters and other layouts must not compile a kernel again."""
    compiled = (kernels.quantize, kernels.dequantize, chunks.measure)
    for name in ("Q8S", "U8 affine", "Q4S block=32:F16", "nf4"):
        x = awkward((4, 512), np.float32)
        x.flags.writeable = False
        found = quantize_on(cpu, x, Scheme.parse(name))
        for array in (found.params.scales, found.words):
            array.flags.writeable = False
        quantize_on(cpu, x.copy(), Scheme.parse(name), found.params)
        cpu.dequantize(
            found.words, plan(Scheme.parse(name), x.shape), found.params, np.empty_like(x)
        )
    packed = plan(Scheme.parse("Q4S block=32:F16"), (4, 512))
    for writeable in (True, False):
        codes = np.ones(packed.shape, np.int8)
        codes.flags.writeable = writeable
        cpu.pack(codes, packed, np.empty(packed.words_shape, packed.words_dtype))
    floats = 3  # float32, float64, and the bits of 16-bit floats
    for loop in compiled:
        assert len(loop.signatures) <= floats * len(KINDS), loop.signatures
    assert len(packing.pack_lines.signatures) == 1


def run_python(code, **environment):
    """Run a script in a fresh process; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": str(SOURCE), **environment},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


LARGE = """
    import numpy as np, qnumba as qn
    x = np.random.default_rng(0).standard_normal(400_000).astype(np.float32)
    q = qn.quantize(x, "int8")
    expected = np.clip(np.rint(x / q.scales), -127, 127)
"""


@pytest.mark.skipif(not jit.IS_COMPILED, reason="nothing is compiled")
@pytest.mark.parametrize("layer", ["omp", "workqueue"])
def test_python_threads_and_forks_get_right_codes(layer):
    """Several Python threads at once, then a child process after use: no abort, right codes."""
    code = (
        LARGE
        + """
    import concurrent.futures, os
    def works(_): return bool((qn.quantize(x, "int8").codes() == expected).all())
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(works, range(40)))
    child = os.fork()
    if child == 0:
        os._exit(0 if works(0) else 1)
    assert os.waitpid(child, 0)[1] == 0
    print("right")
    """
    )
    assert run_python(code, NUMBA_THREADING_LAYER=layer) == "right"


@pytest.mark.skipif(not jit.IS_COMPILED, reason="nothing is compiled")
def test_an_edit_of_any_module_compiles_again(tmp_path):
    """Numba alone looks at the file of the kernel only, and would run the old code."""
    import shutil

    package = tmp_path / "qnumba"
    shutil.copytree(SOURCE / "qnumba", package, ignore=shutil.ignore_patterns("__pycache__"))
    code = """
        import numpy as np, qnumba as qn
        print(float(qn.quantize(np.ones(8, np.float32), "uint8").scales))
    """
    cache = str(tmp_path / "cache")

    before = run_python(code, PYTHONPATH=str(tmp_path), NUMBA_CACHE_DIR=cache)
    scales = package / "cpu" / "scales.py"
    text = scales.read_text()
    edited = text.replace("raw[k] = scale if width > 0 else 1.0", "raw[k] = 3.0")
    assert edited != text
    scales.write_text(edited)
    after = run_python(code, PYTHONPATH=str(tmp_path), NUMBA_CACHE_DIR=cache)

    assert (float(before), float(after)) == (pytest.approx(1 / 255), 3.0)


@pytest.mark.skipif(not jit.IS_COMPILED, reason="nothing is compiled")
def test_no_cache_folder_is_one_warning():
    code = """
        import warnings
        from numba.core import caching
        caching.CacheImpl._locator_classes = []  # as where no folder at all can be written
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import numpy as np, qnumba as qn
            q = qn.quantize(np.ones(3, np.float32), "int8")
            q.dequantize()
        print(q.codes().tolist(), sum("compiled kernels" in str(w.message) for w in caught))
    """
    assert run_python(code) == "[127, 127, 127] 1"


@pytest.mark.skipif(not jit.IS_COMPILED, reason="this is the run without the compiler")
def test_the_kernels_are_right_without_the_compiler():
    """The Python twins of the primitives run the same tests, on the sizes that fit."""
    few = "(shapes and (5-17 or 33-65)) or dtypes or keep or many_axes"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__, "-k", few],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        cwd=Path(__file__).parents[1],
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


def test_options_are_the_backends_only_state():
    """Two calls with other options in between give the same bits."""
    x = awkward((4, 100), np.float32)
    first = quantize_on(cpu, x, Scheme.parse("Q8S"))
    quantize_on(cpu, x, Scheme.parse("Q8S"), **Options(rounding="away")._asdict())
    assert_same_bits(quantize_on(cpu, x, Scheme.parse("Q8S")).words, first.words)
