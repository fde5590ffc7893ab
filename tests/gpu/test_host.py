"""The host side on the emulated launcher: kinds of arrays, streams, devices, waiting, owners."""

from __future__ import annotations

import gc
import sys
import types
import weakref

import numpy as np
import pytest

import qnumba as qn
from cuda_support import BFLOAT16, hard
from emulator.device import SM90, Array, emulated
from emulator.dlpack import Producer
from qnumba.gpu import arrays
from qnumba.scheme import PRESETS

pytestmark = pytest.mark.cuda_emulated


@pytest.fixture
def device():
    with emulated(SM90) as emulator:
        yield emulator


class Interface:
    """An object with nothing but the CUDA array interface."""

    def __init__(self, **entries):
        self.__cuda_array_interface__ = {"version": 3, "stream": None, "strides": None} | entries


class Cupy(Array):
    """An array that says it comes from CuPy, on a stream."""

    stream = 77

    @property
    def __cuda_array_interface__(self):
        return super().__cuda_array_interface__ | {"stream": self.stream}


class Tensor:
    """The fields of a torch tensor that are read."""

    is_cuda = True

    def __init__(self, array, dtype, strides=None, index=0):
        self.array, self._strides = array, strides
        self.dtype, self.shape = f"torch.{dtype}", array.shape
        self.device = types.SimpleNamespace(index=index)

    def data_ptr(self):
        return self.array.pointer

    def element_size(self):
        return self.array.dtype.itemsize

    def is_contiguous(self):
        return self._strides is None

    def stride(self):
        return self._strides


Cupy.__module__ = "cupy"
Tensor.__module__ = "torch"


@pytest.fixture
def libraries(device, monkeypatch):
    """Stand-ins for the libraries: what of them is used, and no more."""
    torch = types.ModuleType("torch")
    for name in ("float32", "float16", "float64", "bfloat16", "uint8", "int8", "int32"):
        setattr(torch, name, name)
    torch.cuda = types.SimpleNamespace(
        current_stream=lambda _: types.SimpleNamespace(cuda_stream=55)
    )

    def torch_empty(shape, dtype, device):
        held = "uint16" if dtype == "bfloat16" else dtype
        return Tensor(emulator.empty(shape, held), dtype, index=int(device.rpartition(":")[2]))

    emulator = device
    torch.empty = torch_empty
    cupy = types.ModuleType("cupy")
    cupy.empty = lambda shape, dtype: Cupy(
        emulator, emulator.empty(shape, dtype).pointer, shape, dtype
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    return device


def test_torch_tensors_come_back_as_tensors_on_their_stream(libraries):
    x = hard((4, 64), 1, "bfloat16")
    tensor = Tensor(libraries.put(x.view(np.uint16)), "bfloat16")
    q = qn.quantize(tensor, "nvfp4")
    y = q.dequantize("bfloat16")
    assert all(type(part) is Tensor for part in (q.words, q.scales, q.global_scale, y))
    assert {stream for *_, stream in libraries.launches} == {55}
    assert y.dtype == "torch.bfloat16"
    expected = qn.quantize(x, "nvfp4")
    assert q.to_host() == expected
    assert (y.array.get() == expected.dequantize(BFLOAT16).view(np.uint16)).all()


def test_strided_tensors(libraries):
    x = hard((6, 64), 2)
    tensor = Tensor(libraries.put(x), "float32", strides=(1, 64))
    tensor.shape = (64, 6)
    assert qn.quantize(tensor, "int8") == qn.quantize(x.T, "int8")


def test_cupy_arrays_come_back_as_cupy_arrays_on_their_stream(libraries):
    x = hard((4, 64), 3)
    given = libraries.put(x)
    q = qn.quantize(Cupy(libraries, given.pointer, x.shape, x.dtype), "int4")
    assert type(q.words) is Cupy
    assert type(q.codes()) is Cupy
    assert {stream for *_, stream in libraries.launches} == {77}
    assert q.to_host() == qn.quantize(x, "int4")


def test_another_stream_is_waited_for_on_the_device(libraries):
    x = libraries.put(hard((4, 64), 3))
    one = Cupy(libraries, x.pointer, x.shape, x.dtype)
    q = qn.quantize(one, "int8")
    other = Cupy(libraries, x.pointer, x.shape, x.dtype)
    other.stream = 78
    qn.quantize(other, "int8", out=q)
    assert set(libraries.waits) == {(78, 77)}


@pytest.mark.parametrize("name", PRESETS)
def test_nothing_waits_but_the_look_for_nan(device, name):
    x = device.put(hard((256, 256), 4))
    qn.quantize(x, name, nonfinite="clip").dequantize()  # puts a lookup table there, once
    before = device.syncs
    q = qn.quantize(x, name, nonfinite="clip")
    q.dequantize()
    q.codes()
    qn.quantize(x, name, params=qn.calibrate(x, name, nonfinite="clip"), nonfinite="clip", out=q)
    assert device.syncs == before
    qn.quantize(x, name)
    assert device.syncs == before + 1


def test_there_and_back(device):
    x = hard((5, 96), 5)
    for name in PRESETS:
        on_host = qn.quantize(x, name)
        q = qn.quantize(device.put(x), name)
        assert q == on_host
        assert q.to_bytes() == on_host.to_bytes()
        assert q.to_record() == on_host.to_record()
        assert on_host.to_device() == on_host
        assert (on_host.to_device().dequantize().get() == on_host.dequantize()).all()
        assert np.asarray(q).tobytes() == np.asarray(on_host).tobytes()


def test_integers(device):
    for dtype in ("int8", "uint16", "int32", "int64", "uint64"):
        x = np.arange(100).astype(dtype)
        assert qn.quantize(device.put(x), "int8") == qn.quantize(x, "int8")
    for worst in (np.array([2**53 + 1]), np.array([2**53 + 1], np.uint64), np.array([-(2**63)])):
        with pytest.raises(qn.DataError, match=r"2\*\*53"):
            qn.quantize(device.put(worst), "int8")


def test_empty_arrays(device):
    x = np.zeros((0, 32), np.float32)
    q = qn.quantize(Interface(shape=x.shape, typestr="<f4", data=(0, False)), "int4")
    assert q == qn.quantize(x, "int4")


def test_nan_is_reported_as_on_the_host(device):
    x = hard((4, 64), 6)
    x[1, 3] = np.nan
    with pytest.raises(qn.DataError) as on_host:
        qn.quantize(x, "int4")
    for call in (qn.quantize, qn.calibrate):
        with pytest.raises(qn.DataError) as on_device:
            call(device.put(x), "int4")
        assert str(on_device.value) == str(on_host.value)


def test_unaligned_and_strided_interfaces(device):
    x = hard((6, 64), 7)
    raw = device.put(np.frombuffer(b"\0" + x.tobytes(), np.uint8))
    odd = Interface(shape=x.shape, typestr="<f4", data=(raw.pointer + 1, False))
    assert qn.quantize(odd, "int4") == qn.quantize(x, "int4")
    held = device.put(x)
    every = Interface(
        shape=(3, 32), typestr="<f4", data=(held.pointer + 4, False), strides=(512, 8)
    )
    assert qn.quantize(every, "int4") == qn.quantize(x[::2, 1::2], "int4")
    back = Interface(
        shape=x.shape, typestr="<f4", data=(held.pointer + x.nbytes - 4, False), strides=(-256, -4)
    )
    assert qn.quantize(back, "int4") == qn.quantize(x[::-1, ::-1], "int4")


def test_objects_that_speak_dlpack_alone(device):
    x = hard((6, 64), 7)
    given = Producer(device.put(x))
    q = qn.quantize(given, "int4")
    assert q.to_host() == qn.quantize(x, "int4")
    assert set(given.streams) == {1}  # the producer makes its data safe for the default stream
    assert {stream for *_, stream in device.launches} <= {0, 1}
    turned = device.put(x)
    turned.shape = (64, 6)
    assert qn.quantize(Producer(turned, strides=(1, 64)), "int8") == qn.quantize(x.T, "int8")
    halves = hard((6, 64), 7, "bfloat16")
    named = Producer(device.put(halves.view(np.uint16)), name="bfloat16")
    assert qn.quantize(named, "mxfp8") == qn.quantize(halves, "mxfp8")


def test_division_by_multiplication():
    from qnumba.gpu.routes import divisor

    for number in (*range(1, 300), 2**16 + 1, 2**30 - 1, 2**30 + 1, 2**31 - 1):
        factor, shift = divisor(number)
        assert factor < 2**32
        last = (2**31 - 1) // number
        for times in (0, 1, 2, last // 2, last - 1, last):
            for n in range(times * number - 1, times * number + 2):
                assert not 0 <= n < 2**31 or n * factor >> shift == n // number


def test_small_arrays_warn_of_nothing(device, monkeypatch):
    from numba import config

    monkeypatch.setattr(config, "CUDA_LOW_OCCUPANCY_WARNINGS", 1)
    assert qn.quantize(device.put(hard((4, 64), 1)), "int4").to_host()  # a warning is an error
    assert config.CUDA_LOW_OCCUPANCY_WARNINGS == 1


def test_masked_arrays_are_refused(device):
    x = Interface(shape=(4,), typestr="<f4", data=(1, False), mask=True)
    with pytest.raises(qn.QuantizedTypeError, match="masked"):
        qn.quantize(x, "int8")


def test_mixed_places_are_refused(device, monkeypatch):
    x = hard((4, 64), 8)
    on_device, on_host = qn.quantize(device.put(x), "int8"), qn.quantize(x, "int8")
    with pytest.raises(qn.SchemeError, match="on the host"):
        qn.quantize(device.put(x), "int8", out=on_host)
    with pytest.raises(qn.SchemeError, match="on a CUDA device"):
        qn.quantize(x, "int8", out=on_device)
    with pytest.raises(qn.SchemeError, match="Q8S"):
        qn.quantize(device.put(x), "int4", out=on_device)
    with pytest.raises(qn.UnsupportedSchemeError, match="to_host"):
        on_device.swapaxes(0, 1)
    far = device.put(x).pointer
    place = arrays.driver.device_of
    monkeypatch.setattr(arrays.driver, "device_of", lambda at: 1 if at == far else place(at))
    y = Interface(shape=x.shape, typestr="<f4", data=(far, False))
    with pytest.raises(qn.SchemeError, match="CUDA device 0, the input on 1"):
        qn.quantize(y, "int8", out=on_device)
    with pytest.raises(qn.SchemeError, match="x is on CUDA device 1, words on 0"):
        qn.quantize(y, "int8")  # the emulator has new memory on device 0 only
    assert 1 in device.entries


def test_parameters_may_come_from_the_host(device):
    x = hard((4, 64), 9)
    for name in ("int8", "uint8", "nvfp4"):
        params = qn.calibrate(x, name)
        q = qn.quantize(device.put(x), name, params=params)
        assert q == qn.quantize(x, name, params=params)
        own = qn.QParams(*(qn.calibrate(device.put(x), name).__dict__[part] for part in (
            "scales", "global_scale", "zero_points")))  # fmt: skip
        assert qn.quantize(device.put(x), name, params=own) == q


def test_no_array_is_kept_longer_than_needed(device):
    x = device.put(hard((4, 64), 1))
    held = weakref.ref(x)
    qn.quantize(x, "int4", nonfinite="clip")
    del x
    device.launches.clear()
    gc.collect()
    assert held() is None


def test_decoding_into_a_given_array(device):
    x = hard((4, 64), 10)
    q = qn.quantize(device.put(x), "int8")
    out = device.empty(x.shape, np.float16)
    assert q.dequantize(out=out) is out
    assert (out.get() == qn.quantize(x, "int8").dequantize(np.float16)).all()
    with pytest.raises(qn.SchemeError, match="shape"):
        q.dequantize(out=device.empty((4, 63), np.float32))
    with pytest.raises(qn.QuantizedTypeError, match="int32"):
        q.dequantize("int32")
    with pytest.raises(qn.QuantizedTypeError, match="cannot decode to >f4"):
        q.dequantize(np.dtype(">f4"))  # no CUDA library has bytes in the other order


def test_pack_and_unpack(device):
    from qnumba import reference
    from qnumba.gpu import operations
    from qnumba.layout import plan

    for text, shape in (
        ("Q4S store=packed_u32", (5, 33)),
        ("Q2F pack_axis=1", (40, 3)),
        ("U8 affine", (7,)),
    ):
        layout = plan(qn.Scheme.parse(text), shape)
        codes = np.random.default_rng(0).integers(layout.value.lo, layout.value.hi + 1, shape)
        codes = codes.astype(layout.code_dtype)
        expected = np.zeros(layout.words_shape, layout.words_dtype)
        reference.pack(codes, layout, expected)
        words = device.empty(layout.words_shape, layout.words_dtype)
        operations.pack(device.put(codes), layout, words)
        assert (words.get() == expected).all()
        back = device.empty(shape, layout.code_dtype)
        operations.unpack(words, layout, back)
        assert (back.get() == codes).all()
