"""Quantized arrays as bytes: the scale codec, the dense record, the self-describing container.

docs/bytes.md describes the layouts byte by byte. Everything is little-endian on every host. What
is read may come from anywhere: sizes are compared with the bytes at hand before anything is
allocated, and whatever is not exactly what a writer makes is a DecodeError.
"""

from qnumba.serialize.container import Contents, container_parts, from_bytes, to_bytes
from qnumba.serialize.record import from_record, record_size, to_record
from qnumba.serialize.scales import decode_scales, encode_scales

__all__ = [
    "Contents",
    "container_parts",
    "decode_scales",
    "encode_scales",
    "from_bytes",
    "from_record",
    "record_size",
    "to_bytes",
    "to_record",
]
