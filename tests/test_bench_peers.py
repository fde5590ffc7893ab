"""Other libraries in the benchmark: what is installed does what it is timed for."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from qnumba.bench.cases import CACHED, CASES
from qnumba.bench.measure import check_job, numbers
from qnumba.bench.peers import PEERS, Job
from qnumba.errors import DataError

JOBS = {f"{peer.name}: {name}": (peer, name) for peer in PEERS for name in peer.jobs}
CASE_OF = {case.peer: case for case in CASES.values() if case.peer}


def test_jobs_are_those_of_cases():
    assert {name for _, name in JOBS.values()} == set(CASE_OF)
    assert len({peer.name for peer in PEERS}) == len(PEERS)


def test_a_package_has_threads_of_one_kind():
    assert len({peer.package: peer.family for peer in PEERS}) == len(
        {(peer.package, peer.family) for peer in PEERS}
    )


@pytest.mark.filterwarnings("ignore")  # what others deprecate is theirs
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("job", JOBS)
def test_a_job_gives_the_numbers_back(job, threads):
    peer, name = JOBS[job]
    pytest.importorskip(peer.package)
    case = CASE_OF[name]
    x = numbers(case.shape(CACHED), case.dtype)
    before = x.copy()
    check_job(peer.jobs[name](x, threads), case, x)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize(
    ("name", "wrong", "why"),
    [
        ("mxfp4", np.zeros_like, "an SNR of 0.0 dB"),
        ("mxfp4_to_float", lambda x: -x, "an SNR of -6.0 dB"),
        ("fp8", lambda x: x * np.nan, "an SNR of nan dB"),
        ("minmax", lambda x: np.array([x.max(), x.min()]), "is right"),
        ("absmax", lambda x: np.array([x.max()]) * 0.9, "is right"),
    ],
)
def test_another_job_is_not_timed(name, wrong, why):
    case = CASE_OF[name]
    x = numbers(case.shape(4096), case.dtype)
    with pytest.raises(DataError, match=why):
        check_job(Job(lambda: None, lambda: wrong(x)), case, x)


PRODUCTS = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import products
weights = np.random.default_rng(0).standard_normal((products.MATRICES, 64, 4096), np.float32)
products.measure(sys.argv[2], weights)
"""


@pytest.mark.parametrize(
    ("package", "number"), [("onnxruntime", 4), ("torch", 3), ("libggml", 3), ("llama_cpp", 3)]
)
def test_products_of_others_are_right(package, number):
    pytest.importorskip(package)
    folder = Path(__file__).resolve().parents[1] / "benchmarks"
    command = [sys.executable, "-c", PRODUCTS, str(folder), package]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == number, done.stderr
    assert all(min(row["us"], row["qnumba_us"]) > 0 for row in rows)
