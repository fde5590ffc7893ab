"""burn's layouts and schemes: words, record lengths, grids, blocks, permutations, packing."""

import numpy as np
import pytest

import oracle
from qnumba.errors import SchemeError
from qnumba.formats import SCALES, VALUES
from qnumba.layout import plan
from qnumba.scheme import PRESETS, Scheme, expand_block
from qnumba.serialize import record_size
from support import (
    STORE_NAMES,
    assert_same_bits,
    f32,
    golden,
    golden_scheme,
    pack_on,
    unpack_on,
)

LAYOUT = golden("layout")
SCHEMES = golden("scheme")


def store_of(text):
    """Return (store, packed axis) of burn's text, such as ``PackedU32(1)``."""
    name, _, axis = text.rstrip(")").partition("(")
    return STORE_NAMES[name], int(axis or 0)


def layout_scheme(row):
    _, value, store, tensor, block = row[:5]
    name, axis = store_of(store)
    size, dtype = block or (None, None)
    return Scheme(
        value, block=size, block_scale=dtype, tensor_scale=tensor, store=name, pack_axis=axis
    )


def test_every_layout_row():
    """2,007 combinations of shape, value, store and levels.

    Native packing of anything but E2M1 stores one code per byte in burn and is refused here, as
    burn's own kernels do. A block with more extents than the array has axes is refused here.
    """
    outcomes = {"equal": 0, "no native packing": 0, "block beyond rank": 0}
    assert LAYOUT["columns"][5:] == ["storage_elements", "quantized_data_len", "params_shape"]
    for row in LAYOUT["rows"]:
        shape, value, store, _, block, storage, length, params_shape = row
        if store.startswith("PackedNative") and value != "E2M1":
            with pytest.raises(SchemeError, match="native packing"):
                layout_scheme(row)
            outcomes["no native packing"] += 1
            continue
        scheme = layout_scheme(row)
        if block and len(block[0]) > len(shape):
            with pytest.raises(SchemeError, match="extents"):
                plan(scheme, tuple(shape))
            outcomes["block beyond rank"] += 1
            continue
        made = plan(scheme, tuple(shape))
        assert int(np.prod(made.words_shape)) == storage, row
        assert list(made.grid or (1,)) == params_shape, row
        assert record_size(made) == length, row
        outcomes["equal"] += 1
    assert sum(outcomes.values()) == 2007
    assert outcomes["no native packing"] == sum(
        row[2].startswith("PackedNative") and row[1] != "E2M1" for row in LAYOUT["rows"]
    )
    assert outcomes["equal"] > 1200


@pytest.mark.parametrize("row", LAYOUT["block_layout"], ids=lambda row: str(row["shape"]))
def test_block_of_every_element(row, reference):
    """A block is a rectangle of coordinates: seen as the scale each element is decoded with."""
    scheme = Scheme("U8", mode="affine", block=tuple(row["block"]), store="native")
    made = plan(scheme, tuple(row["shape"]))
    assert int(np.prod(made.grid)) == row["num_blocks"]
    whole = all(
        extent % step == 0
        for extent, step in zip(row["shape"], expand_block(scheme, len(row["shape"])), strict=True)
    )
    assert whole == row["divides"]
    numbers = np.arange(row["num_blocks"], dtype=np.float32).reshape(made.grid)
    params = oracle.Expected(None, numbers, None, np.zeros(made.grid, np.int32))
    out = np.empty(made.shape, np.float32)
    reference.dequantize(np.ones(made.shape, np.uint8), made, params, out)
    assert out.ravel().tolist() == row["block_of"]


@pytest.mark.parametrize("row", SCHEMES["block_size"], ids=lambda row: str(row["input"]))
def test_block_sizes(row):
    """Leading 1s are dropped. burn's empty block is one element: (1,) here.

    burn expands a block to fewer axes by dropping trailing extents; here that is refused.
    """
    if "panics_debug_only" in row:
        with pytest.raises(SchemeError, match="at most 5 extents") as caught:
            Scheme("Q8S", block=tuple(row["input"]))
        assert caught.value.field == "block"
        return
    if not row["input"]:
        with pytest.raises(SchemeError) as caught:
            Scheme("Q8S", block=())
        assert caught.value.field == "block"
        return
    scheme = Scheme("Q8S", block=tuple(row["input"]))
    assert scheme.block == tuple(row["canonical"] or [1])
    assert int(np.prod(scheme.block)) == row["num_elements"]
    needed = len(row["canonical"])
    for rank, extents in enumerate(row["to_dim_vec_rank_0_to_6"]):
        if rank < needed:
            with pytest.raises(SchemeError, match="extents"):
                expand_block(scheme, rank)
        else:
            assert list(expand_block(scheme, rank)) == extents
    for grid in row["num_blocks"]:
        if len(grid["shape"]) >= needed:
            assert list(plan(scheme, tuple(grid["shape"])).grid) == grid["num_blocks"]


def test_block_size_counts():
    assert len(SCHEMES["block_size"]) == 16
    assert sum("panics_debug_only" in row for row in SCHEMES["block_size"]) == 2


@pytest.mark.parametrize("row", SCHEMES["permute_block_dims"], ids=str)
def test_permuted_blocks(row):
    scheme = Scheme("Q8S", block=tuple(row["block"]))
    assert len(row["axes"]) == row["rank"]
    assert scheme.permute(row["axes"]).block == tuple(row["result"] or [1])


@pytest.mark.parametrize("row", SCHEMES["swap_block_dims"], ids=str)
def test_swapped_blocks(row):
    scheme = Scheme("Q8S", block=tuple(row["block"]))
    assert scheme.swapaxes(row["rank"], row["dim0"], row["dim1"]).block == tuple(row["result"])


@pytest.mark.parametrize("row", SCHEMES["swap_packing_dim"], ids=str)
def test_swapped_packing(row):
    """burn compares its innermost-relative axis with plain axis numbers, a mix of conventions.

    Here the axes of ``swapaxes`` count from the outside, as in NumPy: on rank 5 burn's "axis n
    from the inside" is axis 4 - n. With that reading all of burn's rows hold.
    """
    store, axis = store_of(row["store"])
    after, new_axis = store_of(row["result"])
    scheme = Scheme("E2M1", store=store, pack_axis=axis)
    swapped = scheme.swapaxes(5, 4 - row["dim0"], 4 - row["dim1"])
    assert (swapped.store, swapped.pack_axis) == (after, new_axis)


@pytest.mark.parametrize("row", SCHEMES["values"], ids=lambda row: row["value"])
def test_values(row):
    value = VALUES[row["value"]]
    assert value.bits == row["size_bits"]
    assert [value.lo, value.hi] == f32([row["range_min"], row["range_max"]]).tolist()
    packs = row["native_packing"] == 2
    assert packs == (row["value"] == "E2M1")


@pytest.mark.parametrize("row", SCHEMES["value_store"], ids=lambda r: f"{r['value']}-{r['store']}")
def test_codes_in_a_word(row):
    store, axis = store_of(row["store"])
    if store == "packed_native" and row["value"] != "E2M1":
        with pytest.raises(SchemeError, match="native packing"):
            Scheme(row["value"], store=store)
        return
    scheme = Scheme(row["value"], store=store, pack_axis=axis)
    words = plan(scheme, (row["num_quants"] * 3,)).words_shape
    assert words == (3,)
    if store != "native":
        assert plan(scheme, (1,)).words_dtype.itemsize * 8 == row["size_bits_stored"]
        assert scheme.pack_axis == row["packing_dim"]


@pytest.mark.parametrize("row", SCHEMES["levels"], ids=lambda row: row["debug"][59:])
def test_levels(row):
    """Levels. burn cannot quantize to UE8M0 scales; here only two-level schemes are limited."""
    arguments = {
        "tensor_scale": row["set_tensor"],
        "block": None if row["set_block"] is None else tuple(row["set_block"]),
        "block_scale": row["set_block_dtype"],
    }
    if row["num_levels"] == 2 and not row["quantizable"]:
        with pytest.raises(SchemeError, match="per-tensor scale"):
            Scheme("Q8S", **arguments)
        return
    scheme = Scheme("Q8S", **arguments)
    assert row["quantizable"] or scheme.scale_dtype == "UE8M0"
    assert scheme.scale_dtype == row["scale_dtype"]
    assert scheme.two_level == (row["num_levels"] == 2)
    made = plan(scheme, (32, 64))
    values, scales = 32 * 64, int(np.prod(made.grid)) * SCALES[row["scale_dtype"]].bytes
    assert record_size(made) == values + scales + row["global_scale_size"]


def test_level_counts():
    assert len(SCHEMES["levels"]) == 31
    two = [row for row in SCHEMES["levels"] if row["num_levels"] == 2]
    assert (len(two), sum(row["quantizable"] for row in two)) == (15, 2)


def test_presets():
    """burn's NVFP4 is ours. A scheme with an explicit F32 tensor scale equals the default here."""
    assert golden_scheme(SCHEMES["presets"]["nvfp4"]) == PRESETS["nvfp4"]
    assert not SCHEMES["presets"]["default_eq_explicit_f32"]
    assert Scheme("Q8F", tensor_scale="F32") == Scheme("Q8F")
    assert golden_scheme(SCHEMES["presets"]["default"]) == Scheme("Q8F", store="packed_u32")


PACKING = golden("pack_unpack")


@pytest.mark.parametrize("row", PACKING, ids=lambda row: f"{row['op']}-{len(row['values'])}")
def test_pack_and_unpack(backend, row):
    """Words of codes. burn pads the whole stream; here each line, so these are single lines.

    burn shows E4M3 and E2M1 fields as signed integers; here they are unsigned patterns.
    """
    value = row.get("value", "Q8S")
    scheme = Scheme(value, store="packed_u32")
    codes = np.array(row["values"], np.int64)
    kind = np.int8 if value.startswith("Q") else np.uint8
    codes = (codes if value.startswith("Q") else codes % 2 ** VALUES[value].bits).astype(kind)
    words = np.array(row["words"], "<u4")
    if codes.size:
        assert_same_bits(unpack_on(backend, words, scheme, codes.shape), codes, "codes")
    packed = pack_on(backend, codes, scheme, codes.shape)
    if row["op"] == "unpack_u32":  # burn's words hold random bits behind the last code
        used = codes.size * VALUES[value].bits - 32 * (words.size - 1)
        words[-1] &= np.uint32(2**used - 1)
    assert_same_bits(packed, words, "words")


def test_pack_counts():
    assert [
        sum(row["op"] == op for row in PACKING) for op in ("pack_i8s_to_u32s", "unpack_u32")
    ] == [
        7,
        32,
    ]
