"""What the tests of observers share."""

from __future__ import annotations

from support import assert_same_bits


def observe(observer, chunks):
    for chunk in chunks:
        observer.update(chunk)
    return observer


def assert_same_params(actual, expected):
    assert_same_bits(actual.scales, expected.scales, "scales")
    assert actual.global_scale == expected.global_scale
    assert (actual.zero_points is None) == (expected.zero_points is None)
    if actual.zero_points is not None:
        assert_same_bits(actual.zero_points, expected.zero_points, "zero points")
