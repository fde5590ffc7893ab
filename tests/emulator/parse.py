"""PTX text to instructions: opcode parts, predicate, operands."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from emulator.memory import PtxError

TYPES = {
    **{f"u{n}": np.dtype(f"u{n // 8}") for n in (8, 16, 32, 64)},
    **{f"s{n}": np.dtype(f"i{n // 8}") for n in (8, 16, 32, 64)},
    **{f"b{n}": np.dtype(f"u{n // 8}") for n in (8, 16, 32, 64)},
    **{f"f{n}": np.dtype(f"f{n // 8}") for n in (16, 32, 64)},
    "pred": np.dtype(bool),
}
_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\(([^)]*)\)([^{]*)\{")
_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(?:\.ptr\s+(?:\.\w+\s+)?\.align\s+\d+\s+)?([\w$]+)"
)
_ARRAY = re.compile(r"\.(shared|local)\s+\.align\s+(\d+)\s+\.(\w+)\s+([\w$]+)(?:\[(\d+)\])?")
_CONSTANT = re.compile(
    r"\.(?:global|const)\s+\.align\s+\d+\s+\.(\w+)\s+([\w$]+)\[(\d+)\]\s*=\s*\{([^}]*)\}"
)
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)", re.DOTALL)
_SET = re.compile(r"(.*)<(\d+)>$")


class Address(NamedTuple):
    """A register or a name, and bytes from there."""

    base: str
    offset: int


class Instruction(NamedTuple):
    """One instruction; ``guard`` is (predicate register, whether it is negated)."""

    parts: list[str]
    guard: tuple[str, bool] | None
    operands: list[Any]
    text: str
    line: int  # of the PTX text


class Kernel:
    """The code of an entry, its registers, parameters and arrays."""

    def __init__(self, name, params, body, line):
        self.name, self._line = name, line
        self.params = []  # name, type, offset
        self.param_bytes = 0
        for text in filter(None, (part.strip() for part in params.split(","))):
            kind, param = _PARAM.match(text).groups()
            size = TYPES[kind].itemsize
            offset = -(-self.param_bytes // size) * size
            self.params.append((param, kind, offset))
            self.param_bytes = offset + size
        self.registers, self.code, self.labels = {}, [], {}
        self.shared, self.local = {}, {}
        self.sizes = {"shared": 0, "local": 0}
        self._scopes, self._scope_count = [{}], 0
        self._read(body)
        self.code.append(Instruction(["ret"], None, [], "ret", self._line))

    def _read(self, body):
        text = ""
        for sign in body:
            if sign == ";":
                self._statement(" ".join(text.split()))
                text = ""
            elif sign == ":" and re.fullmatch(r"\s*[\w$]+\s*", text):
                self.labels[text.strip()] = len(self.code)
                text = ""
            elif sign == "{" and not text.strip():
                self._scope_count += 1
                self._scopes.append({})
            elif sign == "}" and not text.strip():
                self._scopes.pop()
            else:
                text += sign
            self._line += sign == "\n"

    def _statement(self, line):
        registers = _REGISTERS.match(line)
        array = _ARRAY.match(line)
        if registers:
            for name in registers[2].split(","):
                self._declare(registers[1], name.strip())
        elif array:
            self.array(array)
        elif line and not line.startswith((".pragma", ".loc", ".file")):
            self.code.append(self._instruction(line))

    def _declare(self, kind, name):
        many = _SET.match(name)
        names = [f"{many[1]}{k}" for k in range(int(many[2]))] if many else [name]
        for each in names:
            real = each if len(self._scopes) == 1 else f"{each}@{self._scope_count}"
            self._scopes[-1][each] = real
            self.registers[real] = kind

    def array(self, found):
        """Reserve room for an array that a declaration names."""
        space, align, kind, name, count = found.groups()
        start = -(-self.sizes[space] // int(align)) * int(align)
        getattr(self, space)[name] = start
        self.sizes[space] = start + TYPES[kind].itemsize * int(count or 1)

    def _real(self, name):
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), name)

    def _instruction(self, line):
        guard = None
        guarded = re.match(r"@(!?)([%\w$]+)\s+(.*)", line)
        if guarded:
            guard, line = (self._real(guarded[2]), bool(guarded[1])), guarded[3]
        opcode, _, rest = line.partition(" ")
        operands = [self._operand(text) for text in _split(rest)]
        return Instruction(opcode.split("."), guard, operands, line, self._line)

    def _operand(self, text):
        if text.startswith("{"):
            return [self._operand(part) for part in _split(text[1:-1])]
        if text.startswith("["):
            inner = text[1:-1].strip()
            moved = re.match(r"(.+?)\s*\+\s*(-?\w+)$", inner)
            if moved:
                return Address(self._real(moved[1].strip()), int(moved[2], 0))
            return Address(self._real(inner), 0)
        if "|" in text:
            return [self._real(part.strip()) for part in text.split("|")]
        return self._real(text)


def _split(text):
    """Return what commas outside brackets separate."""
    return [
        part.strip()
        for part in re.findall(r"(?:[^,\[{]|\[[^\]]*\]|\{[^}]*\})+", text)
        if part.strip()
    ]


class Module:
    """The kernels and constants of a PTX text."""

    def __init__(self, ptx):
        ptx = re.sub(r"/\*.*?\*/", lambda found: "\n" * found[0].count("\n"), ptx, flags=re.DOTALL)
        ptx = re.sub(r"//[^\n]*", " ", ptx)
        if re.search(r"\bcall(\.uni)?\b", ptx):
            raise PtxError("a function was not inlined: calls are not supported")
        self.target = re.search(r"\.target\s+(\w+)", ptx)[1]
        self.kernels = {}
        for found in _ENTRY.finditer(ptx):
            first = ptx.count("\n", 0, found.end()) + 1
            kernel = Kernel(found[1], found[2], _braced(ptx, found.end() - 1), first)
            for array in _ARRAY.finditer(ptx[: ptx.index(".entry")]):
                kernel.array(array)
            self.kernels[found[1]] = kernel
        self.constants = {}
        for kind, name, count, values in _CONSTANT.findall(ptx):
            numbers = np.zeros(int(count), TYPES[kind])
            given = [int(value, 0) for value in values.split(",")]
            numbers[: len(given)] = np.array(given).astype(numbers.dtype)
            self.constants[name] = numbers

    @property
    def kernel(self):
        """The one kernel."""
        (only,) = self.kernels.values()
        return only


def _braced(text, start):
    """Return what the brace at ``start`` encloses."""
    depth = 0
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start + 1 : place]
    raise PtxError("a brace is not closed")
