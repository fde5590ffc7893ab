"""What a figure depends on beside the code: the processor and the versions."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qnumba import __version__
from qnumba.bench.measure import available_cores

if TYPE_CHECKING:
    from collections.abc import Iterable

NEEDED = ("numpy", "numba", "llvmlite")


def machine() -> dict[str, Any]:
    """Return the name of the processor, how many cores may be used, and the system."""
    return {
        "cpu": _cpu_name(),
        "cores": len(available_cores()),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _cpu_name() -> str:
    """Return the processor's own name, and the compiler's name for its kind."""
    from llvmlite.binding import get_host_cpu_name  # noqa: PLC0415 - loads LLVM

    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()} ({get_host_cpu_name()})"


def versions(packages: Iterable[str] = ()) -> dict[str, str]:
    """Return the versions of qnumba, of what it needs, and of other packages by import name."""
    found = {"qnumba": __version__, "python": platform.python_version()}
    owners = packages_distributions()
    for package in (*NEEDED, *packages):
        for owner in owners.get(package, [package])[:1]:
            found[owner] = _version(owner)
    return found


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "of unknown version"
