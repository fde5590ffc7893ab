"""Execution: every thread of a launch in lockstep, the ones furthest behind first."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict

import numpy as np

from emulator import convert, floats, integers, warps
from emulator.memory import BASE, MAPPED, WRITTEN, PtxError
from emulator.parse import TYPES, Address
from emulator.warps import COLLECTIVES

UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
SECTOR, WARP = 32, 32
MOST_STEPS = 2_000_000
SPACES = ("param", "global", "shared", "local")


def launch(module, grid, block, arguments, memory, shared=0):
    """Run a kernel; return the finished run, with its counts."""
    return Run(module, grid, block, arguments, memory, shared).go()


class Run:
    """One launch of a kernel."""

    def __init__(self, module, grid, block, arguments, memory, shared):
        self.kernel, self.memory = module.kernel, memory
        self.blocks, self.block_threads = grid, block
        count = grid * block
        thread, self.block = np.arange(count) % block, np.arange(count) // block
        self.specials = {
            "%tid.x": thread,
            "%ctaid.x": self.block,
            "%laneid": thread % WARP,
            "%ntid.x": np.full(count, block),
            "%nctaid.x": np.full(count, grid),
        }
        for name in list(self.specials):
            self.specials[name] = self.specials[name].astype(np.uint32)
        self.warp = self.block * -(-block // WARP) + thread // WARP
        self.warp_sizes = np.bincount(self.warp)
        self.registers = {
            name: np.zeros(count, bool if kind == "pred" else UNSIGNED[TYPES[kind].itemsize])
            for name, kind in self.kernel.registers.items()
        }
        self.params = self._pack(arguments)
        self.names = dict(self.kernel.shared) | self.kernel.local
        self.names |= {name: memory.put(data) for name, data in module.constants.items()}
        size = ((self.kernel.sizes["shared"] + shared) // 16 + 2) * 16
        self.shared = np.full((grid, size), 0xA5, np.uint8)
        self.writer, self.reader = (np.full((grid, size), -1) for _ in range(2))
        self.written_in, self.read_in = (np.full((grid, size), -1) for _ in range(2))
        self.epoch = np.zeros(grid, np.int64)  # barriers that a block has passed
        self.local = np.zeros((count, (self.kernel.sizes["local"] // 16 + 1) * 16), np.uint8)
        self.alive, self.waiting = np.ones(count, bool), np.zeros(count, bool)
        self.resume = np.zeros(count, np.int64)
        self.visits = Counter()  # of places in the code, by threads
        self.sectors = defaultdict(lambda: np.zeros(2, np.int64))  # requests, sectors
        self.approximate = set()

    def _pack(self, arguments):
        wanted = self.kernel.params
        if len(arguments) != len(wanted):
            raise PtxError(f"{len(arguments)} arguments for {len(wanted)} parameters")
        packed = np.zeros(self.kernel.param_bytes + 16, np.uint8)
        for (_, kind, offset), argument in zip(wanted, arguments, strict=True):
            dtype = TYPES[kind]
            data = (
                np.array([argument]).astype(dtype)
                if not isinstance(argument, np.generic)
                else argument
            )
            data = np.atleast_1d(data).view(np.uint8)[: dtype.itemsize]
            packed[offset : offset + data.size] = data
        self.param_offsets = {name: offset for name, _, offset in wanted}
        return packed

    # --- control

    def go(self):
        """Run until every thread has returned."""
        self.queue, self.order = [(0, 0, np.arange(self.alive.size))], 1
        self.gathering = {}  # place of a collective -> threads that wait there for their warps
        with np.errstate(all="ignore"):
            self._run()
        for threads in self.gathering.values():
            raise PtxError(f"a part of warp {self.warp[threads[0]]} waits for the rest in vain")
        if self.alive.any():
            raise PtxError(f"{int(self.alive.sum())} threads wait at a barrier others never reach")
        return self

    def _run(self):
        steps = 0
        while self.queue:
            place, _, threads = heapq.heappop(self.queue)
            while self.queue and self.queue[0][0] == place:
                threads = np.sort(np.concatenate([threads, heapq.heappop(self.queue)[2]]))
            while threads is not None and threads.size:
                steps += 1
                if steps > MOST_STEPS:
                    raise PtxError("too many steps: an endless loop?")
                place, threads = self._step(place, threads)
                behind = threads is not None and self.queue and self.queue[0][0] <= place
                if behind:
                    self.push(place, threads)
                    threads = None

    def _step(self, place, threads):
        """Execute an instruction; return the next place and who goes on there."""
        instruction = self.kernel.code[place]
        active = threads
        if instruction.guard:
            register, negated = instruction.guard
            active = threads[self.registers[register][threads] ^ negated]
        self.visits[place] += threads.size
        name = instruction.parts[0]
        try:
            if name in COLLECTIVES:
                active = threads = self._gathered(place, active)
            if name in CONTROL:
                return CONTROL[name](self, instruction, place, threads, active)
            if active.size:
                OPERATIONS[name](self, instruction.parts, instruction.operands, active)
        except KeyError as error:
            raise PtxError(f"unknown: {error}\n   at: {instruction.text}") from error
        except PtxError as error:
            raise PtxError(f"{error}\n   at: {instruction.text}") from None
        return place + 1, threads

    def _gathered(self, place, threads):
        """Return the threads whose whole warp has come to a collective; let the others wait.

        That is what ``.sync`` means: lanes meet there, in whatever order branches let them come.
        """
        threads = np.sort(np.concatenate([threads, self.gathering.pop(place, threads[:0])]))
        here = np.bincount(self.warp[threads], minlength=self.warp_sizes.size)
        whole = (here == self.warp_sizes)[self.warp[threads]]
        if not whole.all():
            self.gathering[place] = threads[~whole]
        return threads[whole]

    def push(self, place, threads):
        """Let threads go on at a place later."""
        if threads.size:
            heapq.heappush(self.queue, (place, self.order, threads))
            self.order += 1

    def branch(self, instruction, place, threads, active):
        target = self.kernel.labels[instruction.operands[0]]
        if active.size == threads.size:
            return target, threads
        if active.size:
            self.push(target, active)
            self.push(place + 1, np.setdiff1d(threads, active, assume_unique=True))
            return place, None
        return place + 1, threads

    def finish(self, _, place, threads, active):
        self.alive[active] = False
        self._release()
        return place + 1, np.setdiff1d(threads, active, assume_unique=True)

    def barrier(self, instruction, place, threads, active):
        if instruction.parts[1] == "warp":
            return place + 1, threads
        if active.size != threads.size:
            raise PtxError("a predicated barrier")
        self.waiting[active] = True
        self.resume[active] = place + 1
        self._release()
        return place, None

    def _release(self):
        """Let blocks go on whose living threads all wait."""
        needed = np.bincount(self.block[self.alive], minlength=self.blocks)
        here = np.bincount(self.block[self.waiting], minlength=self.blocks)
        ready = (here > 0) & (here == needed)
        if not ready.any():
            return
        threads = np.flatnonzero(self.waiting & ready[self.block])
        self.waiting[threads] = False
        self.epoch[ready] += 1
        for place in np.unique(self.resume[threads]):
            self.push(int(place), threads[self.resume[threads] == place])

    def line_visits(self):
        """Return how many threads came to each line of PTX; one of inline PTX has several places."""
        visits = Counter()
        for place, threads in self.visits.items():
            line = self.kernel.code[place].line
            visits[line] = max(visits[line], threads)
        return visits

    # --- operands

    def read(self, operand, kind, active):
        """Return an operand's value in every active thread."""
        dtype = TYPES[kind]
        bits = UNSIGNED[dtype.itemsize]
        if operand in self.registers:
            value = self.registers[operand][active]
            return value if value.dtype == bool else value.astype(bits).view(dtype)
        if operand in self.specials:
            return self.specials[operand][active].astype(bits).view(dtype)
        if operand in self.names:
            number = self.names[operand]
        elif operand.startswith(("0f", "0d")):
            number = int(operand[2:], 16)
        else:
            number = int(operand.rstrip("U"), 0)
        if kind == "pred":
            return np.full(active.size, bool(number))
        mask = (1 << (8 * dtype.itemsize)) - 1
        return np.full(active.size, number & mask, bits).view(dtype)

    def write(self, register, value, active):
        """Set a register in every active thread."""
        if register == "_":
            return
        held = self.registers[register]
        value = np.asarray(value)
        if held.dtype != bool:
            if value.dtype.kind == "f":
                value = value.view(UNSIGNED[value.dtype.itemsize])
            elif value.dtype.kind == "i":
                value = value.astype(f"i{held.dtype.itemsize}")
            value = value.astype(held.dtype)
        held[active] = value

    # --- memory

    def address(self, where: Address, space, active):
        """Return the address in every active thread."""
        if space == "param":
            return np.full(active.size, self.param_offsets[where.base] + where.offset, np.int64)
        return self.read(where.base, "u64", active).astype(np.int64) + where.offset

    def cells(self, space, place, size, active):
        """Return the bytes of a space and the index of each thread's first; check the access."""
        if (place % size).any():
            raise PtxError(f"a misaligned {size}-byte access to {space} memory")
        if space == "param":
            return self.params, place
        if space == "local":
            return self.local.reshape(-1), active * self.local.shape[1] + place
        if space == "shared":
            width = self.shared.shape[1]
            if (place < 0).any() or (place + size > width - 16).any():
                raise PtxError("shared memory out of bounds")
            return self.shared.reshape(-1), self.block[active] * width + place
        index = place - BASE
        if (index < 0).any() or (index + size > self.memory.heap.size).any():
            raise PtxError("a wild address")
        return self.memory.heap, index

    def load(self, parts, operands, active):
        space, count, dtype = access(parts)
        size = count * dtype.itemsize
        place = self.address(operands[1], space, active)
        data, index = self.cells(space, place, size, active)
        if space == "global":
            if (self.memory.state[index[:, None] + np.arange(size)] != WRITTEN).any():
                raise PtxError("a load outside an allocation or of bytes nobody wrote")
            self._count_sectors("ld", place, size, active)
        if space == "shared":
            self._note_read(place, size, active)
        raw = data[index[:, None] + np.arange(size)].view(UNSIGNED[dtype.itemsize])
        targets = operands[0] if isinstance(operands[0], list) else [operands[0]]
        for k, target in enumerate(targets):
            self.write(target, raw[:, k].copy().view(dtype), active)

    def store(self, parts, operands, active):
        space, count, dtype = access(parts)
        size = count * dtype.itemsize
        place = self.address(operands[0], space, active)
        data, index = self.cells(space, place, size, active)
        sources = operands[1] if isinstance(operands[1], list) else [operands[1]]
        spread = index[:, None] + np.arange(size)
        if space == "global":
            if (self.memory.state[spread] < MAPPED).any():
                raise PtxError("a store outside an allocation")
            self.memory.state[spread] = WRITTEN
            self._count_sectors("st", place, size, active)
        if space == "shared":
            self._note_write(place, size, active)
        kind = f"b{8 * dtype.itemsize}"
        values = np.stack([self.read(source, kind, active) for source in sources], 1)
        data[spread] = np.ascontiguousarray(values).view(np.uint8)

    def atomic(self, parts, operands, active):
        returns = parts[0] == "atom"
        dtype = TYPES[parts[-1]]
        space = "shared" if "shared" in parts else "global"
        rule = next(part for part in parts if part in ATOMICS)
        place = self.address(operands[1 if returns else 0], space, active)
        data, index = self.cells(space, place, dtype.itemsize, active)
        if space == "global" and (self.memory.state[index] != WRITTEN).any():
            raise PtxError("an atomic on memory that nobody wrote or mapped")
        values = self.read(operands[-1], parts[-1], active)
        before = np.empty_like(values)
        cells = data.view(dtype)
        for k, cell in enumerate(index // dtype.itemsize):
            before[k] = cells[cell]
            cells[cell] = ATOMICS[rule](cells[cell], values[k])
        if returns:
            self.write(operands[0], before, active)

    def _note_read(self, place, size, active):
        block = self.block[active]
        for k in range(size):
            writer = self.writer[block, place + k]
            if (writer < 0).any():
                raise PtxError("a load of shared bytes that nobody wrote")
            same = self.written_in[block, place + k] == self.epoch[block]
            if ((writer != active) & same).any():
                raise PtxError("a race: shared memory read with no barrier after another's write")
            self.reader[block, place + k] = active
            self.read_in[block, place + k] = self.epoch[block]

    def _note_write(self, place, size, active):
        block = self.block[active]
        for k in range(size):
            for who, when in ((self.writer, self.written_in), (self.reader, self.read_in)):
                other = who[block, place + k]
                same = when[block, place + k] == self.epoch[block]
                if ((other >= 0) & (other != active) & same).any():
                    raise PtxError("a race: shared memory written with no barrier after another")
            self.writer[block, place + k] = active
            self.written_in[block, place + k] = self.epoch[block]

    def _count_sectors(self, kind, place, size, active):
        warp = self.warp[active].astype(np.int64) << 44
        first, last = (place - BASE) // SECTOR, (place - BASE + size - 1) // SECTOR
        spans = range(int((last - first).max()) + 1)
        touched = np.unique(np.concatenate([warp | np.minimum(first + k, last) for k in spans]))
        self.sectors[kind, size] += (np.unique(warp).size, touched.size)


def access(parts):
    """Return the space, the count and the dtype of a load or store."""
    space = next((part for part in parts if part in SPACES), None)
    if space is None:
        raise PtxError("generic addressing")
    count = next((int(part[1]) for part in parts if part in ("v2", "v4", "v8")), 1)
    return space, count, TYPES[parts[-1]]


def move(run, parts, operands, active):
    """Copy registers, joined or split where one side is a list."""
    to, source = operands
    kind = parts[-1]
    if isinstance(to, list):
        width = TYPES[kind].itemsize // len(to)
        value = run.read(source, f"b{8 * width * len(to)}", active)
        pieces = value.reshape(-1, 1).view(UNSIGNED[width])
        for k, register in enumerate(to):
            run.write(register, pieces[:, k].copy(), active)
    elif isinstance(source, list):
        width = TYPES[kind].itemsize // len(source)
        pieces = np.stack([run.read(part, f"b{8 * width}", active) for part in source], 1)
        run.write(to, pieces.view(UNSIGNED[width * len(source)]).ravel(), active)
    else:
        run.write(to, run.read(source, kind, active), active)


def convert_address(run, _, operands, active):
    """Let a generic address be a global one: they are the same numbers here."""
    run.write(operands[0], run.read(operands[1], "u64", active), active)


def arithmetic(run, parts, operands, active):
    """Do arithmetic of floats or of integers, as the type says."""
    family = floats if parts[-1] in ("f16", "f32", "f64") else integers
    family.execute(run, parts, operands, active)


ATOMICS = {"add": lambda a, b: a + b, "max": max, "min": min, "or": lambda a, b: a | b}
CONTROL = {
    "bra": Run.branch,
    "ret": Run.finish,
    "exit": Run.finish,
    "bar": Run.barrier,
    "barrier": Run.barrier,
}
OPERATIONS = defaultdict(lambda: arithmetic) | {
    "mov": move,
    "ld": Run.load,
    "st": Run.store,
    "cvta": convert_address,
    "cvt": convert.execute,
    "setp": floats.compare,
    "selp": floats.select,
    "atom": Run.atomic,
    "red": Run.atomic,
    **dict.fromkeys(warps.COLLECTIVES, warps.execute),
}
