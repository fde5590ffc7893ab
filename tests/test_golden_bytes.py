"""burn's record bytes: written and read back. Where burn's record is inconsistent, ours is not."""

import numpy as np
import pytest

import oracle
import qnumba as qn
from qnumba.errors import DecodeError
from qnumba.layout import plan
from qnumba.params import Params
from qnumba.serialize import record_size, to_record
from support import STORE_NAMES, assert_same_bits, code_dtype, f32, golden, golden_scheme

ROWS = golden("quantized_bytes")
WRITTEN = [row for row in ROWS if row["kind"] == "new"]
READ = [row for row in ROWS if row["kind"] == "decode_packed"]


def name(row):
    scheme = row["scheme"]
    return f"{scheme['value']}-{scheme['store']}-{row['shape']}-{scheme['block_dtype']}"


def params_of(row, scheme):
    grid = plan(scheme, tuple(row["shape"])).grid
    unit = None if row["decoded_global"] is None else f32([row["decoded_global"]])[0]
    return Params(f32(row["decoded_scales"]).reshape(grid), unit, None)


def code_array(row, scheme):
    codes = np.array(row["values"], np.int8).view(np.uint8)
    if scheme.value.startswith("Q"):
        codes = codes.view(np.int8)
    return codes.reshape(row["shape"])


@pytest.mark.parametrize("row", WRITTEN, ids=name)
def test_written(row):
    """Codes and scales as a record. The scales are those burn reads back: already stored.

    burn writes one byte per value whatever the store: right for the native store. Where it
    disagrees with its own ``quantized_data_len`` (packed words cut short, or not packed at all),
    the record here has that length, and burn's bytes are refused. E2M1 holds integers in burn,
    which are no E2M1 codes.
    """
    scheme, data = golden_scheme(row["scheme"]), bytes.fromhex(row["bytes"])
    shape = tuple(row["shape"])
    made = plan(scheme, shape)
    assert record_size(made) == row["quantized_data_len"]
    codes, params = code_array(row, scheme), params_of(row, scheme)
    if len(data) != row["quantized_data_len"]:
        assert scheme.store == "packed_u32"
        with pytest.raises(DecodeError, match=f"expected {row['quantized_data_len']} bytes"):
            qn.QArray.from_record(data, scheme, shape)
    elif scheme.value == "E2M1":
        with pytest.raises(DecodeError, match="no code"):
            qn.QArray.from_record(data, scheme, shape)
        return
    elif scheme.store == "native":
        assert to_record(made, codes, params) == data
    packed = oracle.pack(codes, scheme)
    record = to_record(made, packed, params)
    q = qn.QArray.from_record(record, scheme, shape)
    assert_same_bits(q.codes(), codes, "codes")
    assert_same_bits(q.scales, params.scales, "scales")
    assert q.to_record() == record
    if params.global_scale is not None:
        assert_same_bits(q.global_scale, params.global_scale, "global scale")


@pytest.mark.parametrize("row", READ, ids=name)
def test_read(row):
    """Packed records. burn reads one flat stream and returns padding; here lines are padded.

    The bytes are random, padding too: here padding that is not 0 is refused, and the codes of
    each line start at a word. On lines of whole words the two agree.
    """
    scheme, data = golden_scheme(row["scheme"]), bytes.fromhex(row["bytes"])
    shape = tuple(row["shape"])
    made = plan(scheme, shape)
    assert len(data) == record_size(made)
    bits, per_word = made.value.bits, 32 // made.value.bits
    line = shape[-1]
    words = np.frombuffer(data, "<u4", int(np.prod(made.words_shape))).reshape(made.words_shape)
    used = (line % per_word) * bits
    clean = words.copy()
    if used:
        with pytest.raises(DecodeError, match="no code"):
            qn.QArray.from_record(data, scheme, shape)
        clean[..., -1] &= np.uint32(2**used - 1)
    record = clean.tobytes() + data[clean.nbytes :]
    q = qn.QArray.from_record(record, scheme, shape)
    fields = (clean[..., None] >> np.arange(0, 32, bits, dtype=np.uint32)) & (2**bits - 1)
    fields = fields.reshape(*shape[:-1], -1)[..., :line].astype(np.int64)
    fields = np.where(fields >= 2 ** (bits - 1), fields - 2**bits, fields)
    assert_same_bits(q.codes(), fields.astype(code_dtype(scheme)), "codes")
    if row["decode_panics"] is None:
        params = params_of(row, scheme)
        assert_same_bits(q.scales, params.scales, "scales")
        flat = row["decoded_values"][: q.codes().size]
        if not used or len(shape) == 1:
            assert q.codes().ravel().tolist() == flat
    else:
        assert used
        assert len(shape) > 1
    assert q.to_record() == record


def test_counts():
    assert (len(ROWS), len(WRITTEN), len(READ)) == (39, 19, 20)
    assert {row["scheme"]["store"] for row in ROWS} <= set(STORE_NAMES)
