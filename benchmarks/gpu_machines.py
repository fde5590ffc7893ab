"""Where ``benchmarks.gpu`` runs: the GPU that is there, or the emulator."""

from __future__ import annotations

import statistics

from qnumba.gpu import driver

REPEATS, CALLS = 11, 4


class Gpu:
    """The device that is there: arrays to it and back, and the time of what it does."""

    emulated = False

    def __init__(self):
        from numba import cuda

        self.cuda = cuda

    def about(self):
        """Return what was run on."""
        import numba
        import numba_cuda

        device = self.cuda.get_current_device()
        return {
            "device": device.name.decode() if isinstance(device.name, bytes) else device.name,
            "capability": ".".join(map(str, driver.capability())),
            "multiprocessors": driver.multiprocessors(),
            "driver": ".".join(map(str, self.cuda.runtime.get_version())),
            "numba": numba.__version__,
            "numba_cuda": numba_cuda.__version__,
        }

    def put(self, array, offset=0):
        """Return a copy of a host array."""
        assert not offset
        return self.cuda.to_device(array)

    def empty(self, shape, dtype):
        """Return an array with anything in it."""
        return self.cuda.device_array(shape, dtype)

    def get(self, array):
        """Return a copy on the host."""
        return array.copy_to_host()

    def wait(self):
        """Wait until the device is done."""
        self.cuda.synchronize()

    def seconds(self, call):
        """Return the median time of a call on the device."""
        call()
        times = []
        for _ in range(REPEATS):
            begin, end = self.cuda.event(timing=True), self.cuda.event(timing=True)
            begin.record()
            for _ in range(CALLS):
                call()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e-3 / CALLS)
        return statistics.median(times)

    def copy(self, to, source):
        """Queue a copy on the device."""
        to.copy_to_device(source)


class Emulator:
    """The same on the emulator, which has no time."""

    emulated = True

    def __init__(self, device):
        self.device = device
        self.put, self.empty = device.put, device.empty

    def about(self):
        """Return what was run on."""
        return {"device": "emulator", "capability": ".".join(map(str, driver.capability()))}

    def get(self, array):
        """Return a copy; every byte must have been written."""
        return array.get()

    def wait(self):
        """Do nothing: the emulator is done."""

    def seconds(self, call):
        """Run a call once."""
        call()
        self.device.runs.clear()

    def copy(self, to, source):
        """Copy."""
        self.device.memory.write(to.pointer, source.get())
