"""How kernels are compiled, cached and run: the only place that calls njit.

Compiled kernels stay on disk, each in a file whose name says all it was made from: the types of its
arguments, the processor, Numba, and every source file of this folder (``SOURCES``). An edit of any
of them compiles again, and processes that compile at the same time cannot mix up their files, as
they can with Numba's own index of numbered files.
"""

from __future__ import annotations

import hashlib
import os
import threading
import warnings
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from numba import prange
from numba._dispatcher import compute_fingerprint
from numba.core import cgutils, types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

# No fastmath, ever: it turns x / e into x * (1 / e). The "python" error model raises on a division
# by 0, and the branch for it keeps loops from being vectorised.
OPTIONS = {"error_model": "numpy", "nogil": True}
IS_COMPILED = not numba.config.DISABLE_JIT

# Elements from which threads are worth their start: 1 us when they spin, 20 to 100 when they sleep.
PARALLEL_FROM = 2**18


def _hash_of_sources(folder: Path) -> str:
    """Return one hash of every Python file of a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


SOURCES = _hash_of_sources(Path(__file__).parent)


class SourcesFiles(IndexDataCacheFile):
    """The files of one function: one for each kind of arguments, and no index."""

    def __init__(self, folder: str, base: str) -> None:
        super().__init__(folder, base, SOURCES)
        self._base, self._start = base, f"{base}.{SOURCES[:16]}."

    def load(self, key: Any) -> Any:
        """Return what was saved with these sources, or None."""
        try:
            return self._load_data(self._name(key))
        except FileNotFoundError:
            return None

    def save(self, key: Any, data: Any) -> None:
        """Save, and remove what other sources left."""
        self._save_data(self._name(key), data)
        for path in Path(self._cache_path).glob(f"{self._base}.*.nb?"):
            if not path.name.startswith(self._start):
                path.unlink(missing_ok=True)

    def _name(self, key: Any) -> str:
        kind = repr((key, self._version)).encode()
        return f"{self._start}{hashlib.sha256(kind).hexdigest()[:32]}.nbc"


class SourcesCache(FunctionCache):
    """Numba's disk cache of one function, fresh as long as ``SOURCES`` is; it never raises."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = SourcesFiles(self._cache_path, self._impl.filename_base)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return a compiled kernel, or None where there is none that can be read."""
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # noqa: BLE001 - whatever a damaged file does, compile instead
            _warn_once(error)
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save a compiled kernel if that is possible."""
        try:
            super().save_overload(sig, data)
        except OSError as error:  # a full disk, or a folder that became read-only
            _warn_once(error)


_has_warned = False


def _warn_once(error: Exception) -> None:
    global _has_warned  # noqa: PLW0603 - one warning per process
    if not _has_warned:
        _has_warned = True
        message = (
            f"compiled kernels cannot be kept on disk ({error}); they are compiled again in every "
            "process. Set NUMBA_CACHE_DIR to a folder that can be written"
        )
        warnings.warn(message, RuntimeWarning, stacklevel=3)


def inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that only kernels call; it is kept on disk as a part of theirs."""
    return numba.njit(forceinline=True, **OPTIONS)(function)  # type: ignore[no-any-return]


def kernel(function: Callable[..., Any], *, parallel: bool = False) -> Callable[..., Any]:
    """Compile a function that Python calls, and keep it on disk where that is possible."""
    if not IS_COMPILED:
        return np.errstate(all="ignore")(function)  # compiled code wraps and overflows silently too
    compiled = numba.njit(parallel=parallel, no_cfunc_wrapper=True, **OPTIONS)(function)
    try:
        compiled._cache = SourcesCache(function)  # noqa: SLF001 - what cache=True does
    except RuntimeError as error:  # no folder can be written
        _warn_once(error)
    return compiled  # type: ignore[no-any-return]


def compiled_as(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Replace a plain function by its compiled form, unless Numba is switched off."""
    return lambda plain: loop if IS_COMPILED else plain


def row(dtype: np.dtype[Any], **numbers: Any) -> Any:
    """Return an array of one row of named numbers: one argument, however many numbers."""
    array = np.zeros(1, dtype)
    for name, number in numbers.items():
        array[name] = number
    array.flags.writeable = False
    return array if IS_COMPILED else array.view(np.recarray)


def as_input(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view that cannot be written: Numba compiles anew for each kind, so there is one."""
    view = array.view()
    view.flags.writeable = False
    return view


# --- threads

FORKED = 0x40  # PF_FORKNOEXEC of the kernel: forked, and no other program since
_is_serial = False


@intrinsic  # type: ignore[untyped-decorator]
def _call(_typing: Any, address: Any, first: Any, stop: Any, arguments: Any) -> Any:
    """Call a compiled kernel by its address."""
    inputs = (first, stop, *arguments.types)

    def emit(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        convention = context.call_conv
        kind = convention.get_function_type(types.none, inputs).as_pointer()
        values = [args[1], args[2], *cgutils.unpack_tuple(builder, args[3])]
        status, _ = convention.call_function(
            builder, builder.inttoptr(args[0], kind), types.none, inputs, values
        )
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp, arguments), emit


@compiled_as(_call)
def call(function: Callable[..., Any], first: int, stop: int, arguments: Any) -> None:
    """Run a kernel from one part to another."""
    function(first, stop, *arguments)


@partial(kernel, parallel=True)
def _share(parts, step, function, arguments):  # type: ignore[no-untyped-def]
    """Give the parts of a kernel to threads, ``step`` at a time.

    The kernel is called by its address, so it is not compiled a second time as a part of this.
    """
    for task in prange((parts + step - 1) // step):
        first = np.int64(task) * step
        call(function, first, min(parts, first + step), arguments)


def launch(function: Callable[..., Any], size: int, parts: int, step: int, *arguments: Any) -> None:
    """Run a kernel over its parts, with threads if there are enough elements and it is safe here.

    A thread takes ``step`` parts at a time.

    Numba's ``workqueue`` layer aborts the process when two threads run kernels at the same time, so
    there only kernels of the main thread have threads.
    """
    if size < PARALLEL_FROM or _is_serial or numba.get_num_threads() == 1:
        function(0, parts, *arguments)
    elif _layer() != "workqueue" or threading.current_thread() is threading.main_thread():
        _share(parts, step, _address(function, arguments), arguments)
    else:
        function(0, parts, *arguments)


_code_and_name = attrgetter("library", "fndesc.llvm_func_name")  # of what Numba compiled
_addresses: dict[tuple[Any, bytes], int] = {}


def _address(function: Any, arguments: tuple[Any, ...]) -> Any:
    """Return where a kernel is for arguments of these types; without Numba, the kernel itself."""
    if not IS_COMPILED:
        return function
    key = (function, compute_fingerprint(arguments))  # as Numba does: finding the types takes long
    if key not in _addresses:
        signature = (types.intp, types.intp, *map(numba.typeof, arguments))
        function.compile(signature)
        code, name = _code_and_name(function.overloads[signature])
        _addresses[key] = code.get_pointer_to_function(name)
    return _addresses[key]


def _layer() -> str:
    """Return Numba's threading layer, started if it was not."""
    try:
        return numba.threading_layer()  # type: ignore[no-any-return]
    except ValueError:  # no kernel has run yet; asking for the threads starts them
        numba.get_num_threads()
        return numba.threading_layer()  # type: ignore[no-any-return]


def _after_fork() -> None:
    """Do without threads in the child of a process that used GNU OpenMP: they would hang or abort.

    Others than Numba use it too, PyTorch for one, and it may be the same library.
    """
    global _is_serial  # noqa: PLW0603 - the state of this process
    try:
        is_unsafe = numba.threading_layer() == "omp"
    except ValueError:  # Numba has started no threads, but what it would start may be in use
        is_safe = numba.config.THREADING_LAYER in {"tbb", "workqueue"}
        is_unsafe = not is_safe and b"libgomp" in _process("maps")
    _is_serial = _is_serial or is_unsafe


def _is_forked() -> bool:
    """Return whether this process was forked, as far as Linux says so."""
    fields = _process("stat").rpartition(b")")[2].split()  # from the state on
    return bool(fields) and bool(int(fields[6]) & FORKED)


def _process(name: str) -> bytes:
    """Return what Linux says of this process."""
    try:
        return Path("/proc/self", name).read_bytes()
    except OSError:
        return b""


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
    if _is_forked():  # before this file was loaded
        _after_fork()
