"""Ranges become scales and zero points, as they are stored."""

from __future__ import annotations

import numpy as np

from qnumba.cpu.jit import inner
from qnumba.cpu.runs import from_bits, to_bits

DOUBLE_MANTISSA, DOUBLE_BIAS = 52, 1023


@inner
def store_scales(job, global_scale, low, high, first, count, scales, points, raw):
    """Turn the ranges of blocks into scales as stored, and into zero points.

    Scales are rounded in float64, where every rule and every scale dtype is exact: below the
    smallest normal number by counting ``tiny``, above it on the bits.
    """
    for start in range(first, first + count, raw.size):
        size = min(raw.size, first + count - start)
        if job.is_power_rule:
            raw_powers(job, high, start, size, raw)
        elif job.is_affine:
            raw_widths(job, low, high, start, size, raw)
        else:
            raw_shares(job, global_scale, high, start, size, raw)
        if not job.is_power_rule:
            round_scales(job, raw, size)
        for k in range(size):
            scales[start + k] = np.float32(raw[k])
        if job.is_affine:
            zero_points(job, low, high, start, size, scales, points)


@inner
def raw_shares(job, global_scale, high, start, count, raw):
    """Raw symmetric scales: the range over the largest code, over the global scale."""
    real = high.dtype.type
    half, share, most = real(job.half), real(global_scale), real(job.float32_max)
    for k in range(count):
        scale = high[start + k] / half
        raw[k] = (most if scale > most else scale) / share


@inner
def raw_widths(job, low, high, start, count, raw):
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
def raw_powers(job, high, start, count, raw):
    """Powers of two under amax and the format's largest power (OCP MX v1.0, section 6.3)."""
    for k in range(count):
        bits = to_bits(np.float64(high[start + k])) + np.uint64(job.power_bias)
        power = np.int64(bits >> np.uint64(DOUBLE_MANTISSA)) - DOUBLE_BIAS - job.emax
        power = min(max(power, -job.power_max), job.power_max)
        scale = from_bits(np.uint64(power + DOUBLE_BIAS) << np.uint64(DOUBLE_MANTISSA))
        raw[k] = scale if high[start + k] > 0 else job.scale_zero


@inner
def round_scales(job, raw, count):
    """Round scales to the multiples of the step of their exponent, in place."""
    most, least, tiny, per_tiny = job.scale_max, job.scale_zero, job.scale_tiny, job.scale_per_tiny
    smallest, is_up = job.scale_smallest, job.scale_is_up
    drop = np.uint64(job.scale_drop)
    keep = ~((np.uint64(1) << drop) - np.uint64(1))
    bias, odd = np.uint64(job.scale_bias), np.uint64(not is_up)
    for k in range(count):
        scale = min(raw[k], most)
        steps = np.rint(scale * per_tiny)
        steps += 1.0 if is_up and steps < scale * per_tiny else 0.0
        bits = to_bits(scale)
        bits = (bits + bias + ((bits >> drop) & odd)) & keep
        scale = steps * tiny if scale <= smallest else from_bits(bits)
        raw[k] = max(min(scale, most), least)


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
