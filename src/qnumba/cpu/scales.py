"""Ranges become scales and zero points, as they are stored."""

from __future__ import annotations

import numpy as np

from qnumba.cpu.jit import inner
from qnumba.cpu.places import has_points
from qnumba.cpu.runs import from_bits, scales_of, to_bits

DOUBLE_MANTISSA, DOUBLE_BIAS = 52, 1023


@inner
def store_scales(job, global_scale, low, high, first, count, scales, points, raw):
    """Turn the ranges of blocks into scales as stored, and into zero points."""
    most, least, smallest = job.scale_max, job.scale_zero, job.scale_smallest
    mantissa, is_up, half = job.scale_mantissa, job.scale_is_up, job.half
    if job.is_power_rule:
        powers(job, high, first, count, scales)
    elif has_points(job):
        for start in range(first, first + count, raw.size):
            size = min(raw.size, first + count - start)
            widths(job, low, high, start, size, raw)
            out = scales[start : start + size]
            scales_of(raw, 0, size, 1.0, 1.0, most, least, smallest, mantissa, is_up, out)
            zero_points(job, low, high, start, size, scales, points)
    else:
        scales_of(
            high, first, count, half, global_scale, most, least, smallest, mantissa, is_up, scales
        )


@inner
def widths(job, low, high, start, count, raw):
    """Raw affine scales: the range over the codes; where it overflows, both are halved."""
    real = high.dtype.type
    two = real(2)
    codes = real(job.hi - job.lo)
    for k in range(count):
        lo, hi = low[start + k], high[start + k]
        width = hi - lo
        scale = width / codes if width < np.inf else (hi / two - lo / two) / (codes / two)
        raw[k] = scale if width > 0 else 1.0


@inner
def powers(job, high, start, count, scales):
    """Powers of two under amax and the format's largest power (OCP MX v1.0, section 6.3)."""
    for k in range(count):
        bits = to_bits(np.float64(high[start + k])) + np.uint64(job.power_bias)
        power = np.int64(bits >> np.uint64(DOUBLE_MANTISSA)) - DOUBLE_BIAS - job.emax
        power = min(max(power, -job.power_max), job.power_max)
        scale = from_bits(np.uint64(power + DOUBLE_BIAS) << np.uint64(DOUBLE_MANTISSA))
        scales[start + k] = np.float32(scale if high[start + k] > 0 else job.scale_zero)


@inner
def zero_points(job, low, high, start, count, scales, points):
    """Zero points of scales as stored."""
    real = low.dtype.type
    lo, hi = real(job.lo), real(job.hi)
    zero = min(max(real(0), lo), hi)
    for k in range(start, start + count):
        point = np.rint(lo - low[k] / real(scales[k]))
        point = min(max(point, lo), hi)
        points[k] = np.int32(zero if scales[k] == 0 or low[k] == high[k] else point)
