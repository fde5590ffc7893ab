"""Set up the tests: a fresh Numba cache, one Hypothesis profile, the backends."""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import os
import shutil
import tempfile
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

# Before anything imports Numba: a cache left by another version of the code would test that one.
os.environ["NUMBA_CACHE_DIR"] = tempfile.mkdtemp(prefix="qnumba-tests-")
atexit.register(shutil.rmtree, os.environ["NUMBA_CACHE_DIR"], ignore_errors=True)

EXAMPLES = int(os.environ.get("QNUMBA_EXAMPLES", "100"))
settings.register_profile(
    "qnumba",
    deadline=None,
    derandomize="QNUMBA_EXAMPLES" not in os.environ,
    max_examples=EXAMPLES,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("qnumba")

BACKENDS = ("reference", "cpu")


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> ModuleType:
    """Each backend in turn: a module with the five operations."""
    name = f"qnumba.{request.param}"
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not there yet")
    return importlib.import_module(name)


@pytest.fixture(scope="session")
def reference() -> ModuleType:
    """The definition of every operation in plain NumPy."""
    return importlib.import_module("qnumba.reference")


@pytest.fixture(scope="session")
def cpu() -> ModuleType:
    """The compiled CPU backend."""
    if importlib.util.find_spec("qnumba.cpu") is None:
        pytest.skip("qnumba.cpu is not there yet")
    return importlib.import_module("qnumba.cpu")
