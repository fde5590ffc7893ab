"""Burnpack files of any content, written byte by byte."""

from __future__ import annotations

import struct

import cbor2

Q8S = {"value": "Q8S", "store": "Native", "mode": "Symmetric", "tensor": None, "block": None}


def write_file(path, metadata, data=b"", *, magic=0x4255524E, version=1, length=None):
    """Write a file of any metadata: a Python object, or bytes that are to stand for CBOR."""
    raw = metadata if isinstance(metadata, bytes) else cbor2.dumps(metadata)
    head = struct.pack("<IHI", magic, version, len(raw) if length is None else length) + raw
    padding = bytes(-len(head) % 256) if data else b""
    path.write_bytes(head + padding + data)
    return path


def write_one(path, dtype="F32", shape=(1,), offsets=(0, 4), data=bytes(4), **more):
    """Write a file of one tensor."""
    entry = {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)} | more
    return write_file(path, {"tensors": {"t": entry}}, data)
