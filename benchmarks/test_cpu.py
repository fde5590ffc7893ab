"""The table of cases as a suite of pytest-benchmark.

    pytest benchmarks/test_cpu.py
    pytest benchmarks/test_cpu.py -k "NVFP4 and 1MiB" --benchmark-json=build/cpu.json

Every benchmark has in ``extra_info`` the bytes of the floating-point side, GB/s of it, the ratio to
the roofline (timed in turns with the case) and the SNR in dB. It runs with Numba's threads, so set
``NUMBA_NUM_THREADS``. ``qnumba bench`` measures the same cases in processes of their own.
"""

from __future__ import annotations

import numba
import pytest

from qnumba.bench.cases import CACHED, CASES, LARGE, size_text
from qnumba.bench.measure import call_of, check, interleaved, numbers, snr
from qnumba.bench.rooflines import roofline

SECONDS = 0.1


@pytest.mark.parametrize("nbytes", [CACHED, LARGE], ids=lambda n: size_text(n).replace(" ", ""))
@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_case(benchmark, case, nbytes):
    """Time a case, and say what it reached."""
    check(case)
    x = numbers(case.shape(nbytes), case.dtype)
    call = call_of(case, x)
    limit = roofline(case.roofline, x, numba.get_num_threads())
    times = interleaved({"ours": call, "limit": limit}, SECONDS)
    result = benchmark(call)
    benchmark.extra_info |= {
        "bytes": x.nbytes,
        "gb_per_s": x.nbytes / times["ours"] / 1e9,
        "ratio": times["limit"] / times["ours"],
        "roofline": case.roofline,
        "snr_db": snr(x, result),
    }
