"""Reported faults of threads, caches, compilers and devices.

See test_cases.py for what they are.
"""

import os
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import qnumba as qn
from qnumba import observers
from qnumba.errors import (
    QuantizationError,
)
from qnumba.formats import STORES, VALUES
from qnumba.scheme import PRESETS, Scheme
from support import assert_same_bits, quantize_on

F32 = np.float32
U8 = Scheme("U8", mode="affine")


def test_X02_indices_on_the_gpu_are_64_bits_wide():
    """blockIdx.x * blockDim.x overflows 32 bits; seen in the PTX, before any GPU runs it."""
    pytest.importorskip("numba_cuda", reason="needs the cuda extra")
    from numba import cuda, int64, void

    from emulator.device import SM90, emulated
    from qnumba.gpu.places import thread_index

    def kernel(out):
        out[0] = thread_index()

    with emulated(SM90):
        compiled = cuda.jit(void(int64[::1]))(kernel)
        ptx = compiled.inspect_asm(next(iter(compiled.overloads)))
    assert "%ctaid.x" in ptx
    assert re.search(r"mul\.wide\.[us]32|mad\.wide\.[us]32|(mul|mad)\.lo\.s64", ptx)
    assert not re.search(r"(mul|mad)\.lo\.[su]32", ptx)


def run(code, **environment):
    """Run Python code in a process of its own and return what it prints."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    kept = os.environ | environment
    done = subprocess.run(command, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("layer", ["workqueue", "omp"])
def test_X03_python_threads(layer):
    """workqueue aborts the process when two threads run parallel kernels at once."""
    code = """
        import threading
        import numpy as np
        import qnumba as qn
        x = np.linspace(-1, 1, 2**19, dtype=np.float32)
        expected = qn.quantize(x, "Q8S").to_record()
        same = []
        def work():
            for _ in range(20):
                q = qn.quantize(x, "Q8S")
                same.append(q.to_record() == expected and q.dequantize().size == x.size)
        threads = [threading.Thread(target=work) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert len(same) == 80 and all(same)
    """
    run(code, NUMBA_THREADING_LAYER=layer)


def test_X05_no_folder_for_the_cache():
    """Importing never touches the cache; the first kernel warns once and works."""
    code = """
        import warnings
        import numpy as np
        from numba.core import caching
        caching.CacheImpl._locator_classes = []  # what Numba is left with where nothing is writable
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import qnumba as qn
            assert not caught
            assert qn.quantize(np.ones(3, np.float32), "Q8S").codes().tolist() == [127] * 3
            assert qn.quantize(np.ones(3, np.float32), "nvfp4").codes().tolist() == [7] * 3
        ours = [w for w in caught if "compiled kernels" in str(w.message)]
        print(len(ours))
    """
    done = run(code)
    assert done.stdout.split() == ["1"]


def test_X06_nan_is_seen(backend):
    """Fast arithmetic would fold isnan to False."""
    x = np.array([1, np.nan, 3], F32)
    for size in (3, 16, 35, 4096):
        made = quantize_on(backend, np.resize(x, size), Scheme("Q8S"))
        assert made.nonfinite
    last = np.ones(2**18 + 5, F32)
    last[-1] = np.nan
    assert quantize_on(backend, last, Scheme("Q8S")).nonfinite


@pytest.mark.parametrize("name", PRESETS)
def test_X07_division_by_a_zero_scale(backend, name):
    scheme = PRESETS[name]
    x = np.zeros((2, 64), F32)
    x[1, 3] = 1e-45
    made = quantize_on(backend, x, scheme)
    assert np.isfinite(made.params.scales).all()
    zero = 0 if made.params.zero_points is None else made.params.zero_points[..., None]
    if scheme.mode != "lookup":
        assert (made.codes[0] == np.ravel(zero)[0]).all()
    assert not qn.quantize(x, name).dequantize()[0].any()


@pytest.mark.filterwarnings("ignore:Grid size")  # a small launch is the point
def test_X08_the_producers_stream():
    """What the CUDA array interface says of the stream is what every kernel runs on."""
    pytest.importorskip("numba_cuda", reason="needs the cuda extra")
    from emulator.device import SM90, emulated

    class Produced:
        def __init__(self, array):
            self.__cuda_array_interface__ = array.__cuda_array_interface__ | {"stream": 77}

    x = np.linspace(-1, 1, 64, dtype=F32)
    with emulated(SM90) as device:
        qn.quantize(Produced(device.put(x)), "Q8S", nonfinite="clip")
        assert device.launches
        assert {stream for *_, stream in device.launches} == {77}


def test_X10_streams_that_start_with_zeros():
    chunks = [np.zeros(8), np.zeros(8), np.arange(8.0)]
    for kind in (observers.MinMax, observers.AbsMax, observers.AbsMean):
        observer = kind(U8 if kind is observers.MinMax else "Q8S")
        with pytest.raises(QuantizationError):
            observer.params()
        for chunk in chunks:
            observer.update(chunk)
        method = "absmean" if kind is observers.AbsMean else "minmax"
        expected = qn.calibrate(np.concatenate(chunks), observer.scheme, method=method)
        assert observer.params() == expected


@pytest.mark.parametrize("value", VALUES)
def test_X12_reference_and_cpu_are_byte_identical(reference, cpu, value):
    """Every value type with every store, scale dtype and level; ties, subnormals and NaN inside."""
    rng = np.random.default_rng(12)
    x = (
        np.concatenate(
            [
                rng.normal(0, 1, 64),
                rng.integers(-20, 20, 64) / 2,
                rng.integers(-999, 999, 64) * 2.0**-149,
                [np.nan, np.inf, -np.inf, 0.0, -0.0] + [1e38] * 59,
            ]
        )
        .astype(F32)
        .reshape(8, 32)
    )
    mode = "affine" if value.startswith("U") else "symmetric"
    levels = [{"tensor_scale": scale} for scale in ("F32", "F16", "BF16", "UE8M0", "UE4M3")]
    for block in (16, (4, 8), (8, 1)):
        levels += [
            {"block": block, "block_scale": scale}
            for scale in ("F32", "F16", "BF16", "UE8M0", "UE4M3")
        ]
        if mode == "symmetric":
            levels.append({"block": block, "block_scale": "UE4M3", "tensor_scale": "F32"})
    compared = 0
    for store, row in STORES.items():
        for level in levels if value in row.values else []:
            scheme = Scheme(value, mode=mode, store=store, **level)
            made = quantize_on(cpu, x, scheme, nonfinite="clip")
            expected = quantize_on(reference, x, scheme, nonfinite="clip")
            assert_same_bits(made.words, expected.words, str(scheme))
            assert_same_bits(made.params.scales, expected.params.scales, str(scheme))
            compared += 1
    assert compared >= 2 * len(levels)
