"""Libraries without threads for a job or two: OpenCV, NumKong, ml_dtypes."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from qnumba.bench.peers.job import UINT8, Affine, Job, Peer, affine

if TYPE_CHECKING:
    from numpy.typing import NDArray


def _cv2(threads: int) -> Any:
    cv2 = import_module("cv2")
    cv2.setNumThreads(threads)
    return cv2


def _opencv_uint8(x: NDArray[Any], threads: int) -> Job:
    cv2, params, out = _cv2(threads), affine(x, UINT8), np.empty(x.shape, np.uint8)
    call = partial(cv2.convertScaleAbs, x, out, 1 / params.scale, params.zero)
    return Job(call, lambda: params.numbers(out))


def _opencv_dynamic(x: NDArray[Any], threads: int) -> Job:
    cv2, out = _cv2(threads), np.empty(x.shape, np.uint8)
    call = partial(cv2.normalize, x, out, *UINT8, cv2.NORM_MINMAX, cv2.CV_8U)
    low, step = float(x.min()), (float(x.max()) - float(x.min())) / UINT8[1]
    return Job(call, lambda: Affine(step, 0).numbers(out) + np.float32(low))


def _opencv_minmax(x: NDArray[Any], threads: int) -> Job:
    call = partial(_cv2(threads).minMaxLoc, x)
    return Job(call, lambda: np.array(call()[:2]))


def _opencv_absmax(x: NDArray[Any], threads: int) -> Job:
    cv2 = _cv2(threads)
    call = partial(cv2.norm, x, cv2.NORM_INF)
    return Job(call, lambda: np.array([call()]))


def _numkong_minmax(x: NDArray[Any], _: int) -> Job:
    call = partial(import_module("numkong").minmax, x.reshape(-1))
    return Job(call, lambda: np.array(call()[::2]))


def _numkong_fp8(x: NDArray[Any], _: int) -> Job:
    numkong, flat = import_module("numkong"), x.reshape(-1)
    codes, back = numkong.empty(flat.shape, dtype="e4m3"), np.empty_like(flat)
    call = partial(numkong.astype, flat, "e4m3", out=codes)
    return Job(call, lambda: numkong.astype(codes, "float32", out=back).reshape(x.shape))


def _numkong_fp8_to_float(x: NDArray[Any], _: int) -> Job:
    numkong, flat = import_module("numkong"), x.reshape(-1)
    codes, out = numkong.empty(flat.shape, dtype="e4m3"), np.empty_like(flat)
    numkong.astype(flat, "e4m3", out=codes)
    call = partial(numkong.astype, codes, "float32", out=out)
    return Job(call, lambda: out.reshape(x.shape))


def _ml_dtypes_fp8(x: NDArray[Any], _: int) -> Job:
    out = np.empty(x.shape, import_module("ml_dtypes").float8_e4m3fn)
    return Job(partial(np.copyto, out, x, casting="unsafe"), lambda: out.astype(np.float32))


def _ml_dtypes_fp8_to_float(x: NDArray[Any], _: int) -> Job:
    codes, out = x.astype(import_module("ml_dtypes").float8_e4m3fn), np.empty_like(x)
    return Job(partial(np.copyto, out, codes), lambda: out)


PEERS = (
    Peer(
        "OpenCV",
        "cv2",
        "plain",
        {
            "affine_uint8": _opencv_uint8,
            "affine_dynamic": _opencv_dynamic,
            "minmax": _opencv_minmax,
            "absmax": _opencv_absmax,
        },
    ),
    Peer(
        "NumKong",
        "numkong",
        "plain",
        {
            "minmax": _numkong_minmax,
            "fp8": _numkong_fp8,
            "fp8_to_float": _numkong_fp8_to_float,
        },
    ),
    Peer(
        "ml_dtypes",
        "ml_dtypes",
        "plain",
        {
            "fp8": _ml_dtypes_fp8,
            "fp8_to_float": _ml_dtypes_fp8_to_float,
        },
    ),
)
