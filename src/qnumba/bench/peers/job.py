"""What a library that takes part is, and what it makes of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Job(NamedTuple):
    """A call that is ready, and what shows that it is the right one.

    Attributes
    ----------
    call : callable
        What is timed; without arguments. It writes to memory that is used again, where the library
        has a way to do that.
    numbers : callable
        Returns the numbers that the codes of the call stand for, once it has run: the array again
        for what encodes and decodes, ``[smallest, largest]`` and ``[largest magnitude]`` for what
        calibrates.
    """

    call: Callable[[], Any]
    numbers: Callable[[], NDArray[Any]]


Prepare = Callable[["NDArray[Any]", int], Job]


class Peer(NamedTuple):
    """A library.

    Attributes
    ----------
    name : str
        What it is called in tables.
    package : str
        Its import name.
    family : str
        The kind of its threads. Families are measured in processes of their own, for thread pools
        that spin slow each other.
    jobs : mapping
        Names of jobs, those of ``Case.peer``, to functions of an array of float32 and a number of
        threads that import the library and prepare the job.
    """

    name: str
    package: str
    family: str
    jobs: Mapping[str, Prepare]


UINT8 = (0, 255)
INT8 = (-128, 127)
UINT4 = (0, 15)


class Affine(NamedTuple):
    """Parameters of ``x = (code - zero) * scale``."""

    scale: float
    zero: int

    def numbers(self, codes: NDArray[Any]) -> NDArray[Any]:
        """Return what codes stand for, as float32."""
        return (codes.astype(np.float32) - np.float32(self.zero)) * np.float32(self.scale)

    def codes(self, x: NDArray[Any], limits: tuple[int, int]) -> NDArray[Any]:
        """Return the codes of numbers, as uint8, or int8 if there are negative ones."""
        steps = np.clip(np.rint(x / np.float32(self.scale)) + self.zero, *limits)
        codes: NDArray[Any] = steps.astype(np.int8 if limits[0] < 0 else np.uint8)
        return codes


def affine(x: NDArray[Any], limits: tuple[int, int]) -> Affine:
    """Return the parameters with which the codes within limits reach from min to max."""
    low, high = min(0.0, float(x.min())), max(0.0, float(x.max()))
    scale = (high - low) / (limits[1] - limits[0])
    return Affine(scale, limits[0] - round(low / scale))


def nibbles(packed: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the codes of 4 bits that are packed two a byte, the first one low."""
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(shape)


class Format(NamedTuple):
    """A library's way to encode an array and to decode it again, as calls that return new arrays.

    Attributes
    ----------
    encode : callable
        Without arguments: returns codes in the library's own form.
    decode : callable
        Of what ``encode`` returned: returns numbers in the library's own form.
    numbers : callable
        Of what ``decode`` returned: returns them as a NumPy array.
    """

    encode: Callable[[], Any]
    decode: Callable[[Any], Any]
    numbers: Callable[[Any], Any] = np.asarray


def named(name: str, jobs: tuple[Prepare, Prepare]) -> dict[str, Prepare]:
    """Return the jobs that encode and decode under the names they have in cases."""
    return {name: jobs[0], f"{name}_to_float": jobs[1]}


def both(prepare: Callable[[NDArray[Any], int], Format]) -> tuple[Prepare, Prepare]:
    """Return the jobs that encode and decode in a format, which is prepared for each of them."""

    def encode(x: NDArray[Any], threads: int) -> Job:
        form = prepare(x, threads)
        return Job(form.encode, lambda: _back(form, form.decode(form.encode()), x))

    def decode(x: NDArray[Any], threads: int) -> Job:
        form = prepare(x, threads)
        call = partial(form.decode, form.encode())
        return Job(call, lambda: _back(form, call(), x))

    return encode, decode


def _back(form: Format, decoded: Any, x: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(form.numbers(decoded), np.float32).reshape(x.shape)


class Expression(NamedTuple):
    """A format as functions that a library compiles.

    Attributes
    ----------
    encode : callable
        Of an array: returns a tuple of arrays of codes and parameters.
    decode : callable
        Of the members of that tuple: returns an array of float32, of any shape.
    """

    encode: Callable[[Any], tuple[Any, ...]]
    decode: Callable[..., Any]
