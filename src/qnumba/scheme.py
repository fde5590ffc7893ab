"""Scheme: what is wanted of a quantization. Frozen, hashable, with a text form."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from qnumba.errors import SchemeError, cut
from qnumba.fields import (
    canonical_block,
    canonical_table,
    table_name,
    table_text,
    whole_number,
    whole_numbers,
)
from qnumba.formats import (
    TABLES,
    VALUES,
    ModeName,
    ScaleName,
    StoreName,
    ValueName,
    default_store,
)
from qnumba.rules import SCHEME_RULES, Rule, closest

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, init=False, repr=False)
class Scheme:
    """How numbers become codes.

    Parameters
    ----------
    value : str
        The value type: Q8F, Q4F, Q2F, Q8S, Q4S, Q2S, U8, U4, U2, E4M3, E5M2 or E2M1.
    mode : str
        ``"symmetric"``, ``"affine"`` (a zero point beside each scale) or ``"lookup"`` (codes
        index ``table``).
    block : int or tuple of int, optional
        Extents of the rectangle that shares a scale, on the trailing axes; 1 to 5 extents of
        1 to 2**31 - 1. None: one scale for the whole array.
    block_scale : str, optional
        Dtype the block scales are stored in: F32 (default), F16, BF16, UE8M0 or UE4M3.
    tensor_scale : str, optional
        Dtype of the per-tensor scale. With a block it makes a two-level scheme (F32 over F16 or
        UE4M3 block scales); without one the default is F32.
    store : str, optional
        ``"native"`` (one code per element), ``"packed_u32"``, ``"packed_u8"`` or
        ``"packed_native"``. Default: native for 8 bits, packed_native for E2M1, else packed_u32.
    pack_axis : int
        The axis words run along, counted from the innermost: 0 is the last. The native store
        packs nothing, so there it is 0.
    table : str or sequence of float, optional
        For lookup: the name of a table (``"nf4"``), or 2**bits ascending numbers.

    Raises
    ------
    SchemeError
        If the arguments do not make a scheme. It carries ``field``, ``value``, ``fix`` and
        ``nearest``, a valid scheme close by.

    Examples
    --------
    >>> Scheme("Q4S", block=32, block_scale="F16")
    Scheme('Q4S', block=(32,), block_scale='F16')
    >>> str(Scheme("E2M1", block=16, block_scale="UE4M3", tensor_scale="F32"))
    'E2M1 block=16:UE4M3 tensor=F32'
    >>> Scheme.parse("Q8S block=2x16:F16").block
    (2, 16)
    """

    value: ValueName
    mode: ModeName
    block: tuple[int, ...] | None
    block_scale: ScaleName | None
    tensor_scale: ScaleName | None
    store: StoreName
    pack_axis: int
    table: tuple[float, ...] | None

    def __init__(
        self,
        value: ValueName,
        *,
        mode: ModeName = "symmetric",
        block: int | Sequence[int] | None = None,
        block_scale: ScaleName | None = None,
        tensor_scale: ScaleName | None = None,
        store: StoreName | None = None,
        pack_axis: int = 0,
        table: str | Sequence[float] | None = None,
    ) -> None:
        """Bring every argument to its one normal form, and refuse what is not a scheme."""
        set_all = self.__dict__.update
        block = canonical_block(block)
        if block is not None and block_scale is None:
            block_scale = "F32"
        set_all(value=value, mode=mode, block=block, block_scale=block_scale)
        set_all(tensor_scale=tensor_scale, store=store, pack_axis=pack_axis)
        set_all(table=canonical_table(table))
        for rule in SCHEME_RULES:
            if rule.broken(self):
                raise _preset_refusal(value) or refusal(rule, self, dict(vars(self)))
        if block is None and tensor_scale == "F32":
            set_all(tensor_scale=None)
        if store is None:
            set_all(store=default_store(value))
        if self.store == "native":
            set_all(pack_axis=0)
        set_all(_hash=hash(tuple(vars(self).values())))

    def __hash__(self) -> int:
        """Return the hash computed once, when the scheme was made."""
        return self._hash  # type: ignore[attr-defined, no-any-return]

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as text: string hashes differ between processes, so the hash must be remade."""
        return (Scheme.parse, (str(self),))

    def __repr__(self) -> str:
        """Return the call that makes this scheme, defaults left out."""
        shown = {f.name: getattr(self, f.name) for f in fields(self)[1:]}
        shown = {name: given for name, given in shown.items() if given != _defaults(self)[name]}
        if self.table is not None:
            shown["table"] = table_name(self.table)
        parts = [repr(self.value), *(f"{name}={given!r}" for name, given in shown.items())]
        return f"Scheme({', '.join(parts)})"

    def __str__(self) -> str:
        """Return the text form, which ``Scheme.parse`` reads back."""
        words = [self.value, "" if self.mode == "symmetric" else self.mode]
        if self.table is not None:
            words.append(f"table={table_text(self.table)}")
        if self.block is not None:
            words.append(f"block={'x'.join(map(str, self.block))}:{self.block_scale}")
        if self.tensor_scale is not None:
            words.append(f"tensor={self.tensor_scale}")
        if self.store != default_store(self.value):
            words.append(f"store={self.store}")
        if self.pack_axis:
            words.append(f"pack_axis={self.pack_axis}")
        return " ".join(word for word in words if word)

    @classmethod
    def parse(cls, text: str) -> Scheme:
        """Read a scheme from text: a preset's name, or what ``str(scheme)`` gives.

        Parameters
        ----------
        text : str
            Such as ``"nvfp4"``, ``"Q4S block=32:F16"`` or ``"U8 affine"``.

        Returns
        -------
        Scheme

        Raises
        ------
        SchemeError
            If a word is not known or the words do not make a scheme.
        """
        if not isinstance(text, str):
            raise _bad_text(text, f"a scheme is text or a Scheme, not {type(text).__name__}")
        words = text.split()
        if len(words) == 1 and words[0] in PRESETS:
            return PRESETS[words[0]]
        if not words:
            raise _bad_text(text, "the scheme text is empty")
        if len(words) == 1 and words[0] not in VALUES:
            raise _unknown_name(words[0])
        arguments: dict[str, Any] = {}
        for word in words[1:]:
            _read_word(word, text, arguments)
        return cls(words[0], **arguments)  # type: ignore[arg-type]

    @property
    def two_level(self) -> bool:
        """Whether block scales stand under one global scale."""
        return self.block is not None and self.tensor_scale is not None

    @property
    def scale_dtype(self) -> ScaleName:
        """The dtype the innermost scales are stored in."""
        return self.block_scale or self.tensor_scale or "F32"

    def replace(self, **changes: Any) -> Scheme:
        """Return this scheme with some arguments changed.

        Parameters
        ----------
        **changes
            Arguments of ``Scheme``, by name.

        Returns
        -------
        Scheme

        Raises
        ------
        SchemeError
            If they do not make a scheme.
        """
        return Scheme(**{f.name: getattr(self, f.name) for f in fields(self)} | changes)

    def permute(self, axes: Sequence[int]) -> Scheme:
        """Return the scheme of an array whose axes were permuted: blocks and packed axis move.

        Parameters
        ----------
        axes : sequence of int
            As for ``numpy.transpose``: axis i of the result is axis ``axes[i]`` of the array.

        Returns
        -------
        Scheme

        Raises
        ------
        SchemeError
            If ``axes`` is no permutation, or has fewer axes than the block or the packed axis.
        """
        named = whole_numbers(axes)
        rank = len(named or ())
        order = [axis + rank if axis < 0 else axis for axis in named or ()]
        if named is None or sorted(order) != list(range(rank)):
            message = f"{cut(repr(axes))} is not a permutation of {rank} axes; name each axis once"
            raise SchemeError(message, field="axes", value=axes, fix="name each axis once")
        block = self.block
        if block is not None:
            full = expand_block(self, rank)
            block = tuple(full[axis] for axis in order)
        pack_axis = self.pack_axis
        if self.store != "native":
            if pack_axis >= max(rank, 1):
                message = f"the packed axis {pack_axis} is outside {rank} axes; permute more axes"
                raise SchemeError(message, field="axes", value=axes, fix="permute more axes")
            pack_axis = rank - 1 - order.index(rank - 1 - pack_axis) if rank else 0
        return self.replace(block=block, pack_axis=pack_axis)

    def swapaxes(self, rank: int, first: int, second: int) -> Scheme:
        """Return the scheme of an array after two of its axes were swapped.

        Parameters
        ----------
        rank : int
            Number of axes of the array.
        first, second : int
            The axes to swap.

        Returns
        -------
        Scheme

        Raises
        ------
        SchemeError
            If the block or the packed axis needs more axes than there are, or if one that is named
            is not there.
        """
        size, *pair = (whole_number(given) for given in (rank, first, second))
        if size is None or not all(axis is not None and -size <= axis < size for axis in pair):
            message = (
                f"{rank!r} axes have no axes {first!r} and {second!r}; name two that are there"
            )
            raise SchemeError(message, field="axes", value=(first, second), fix="name two axes")
        axes = list(range(size))
        axes[first], axes[second] = axes[second], axes[first]
        return self.permute(axes)


def expand_block(scheme: Scheme, rank: int) -> tuple[int, ...]:
    """Return one block extent per axis: the block on the trailing axes, 1 on the others.

    Raises
    ------
    SchemeError
        If the block has more extents than the array has axes.
    """
    block = scheme.block
    if block == (1,) or block is None:
        return (1,) * rank
    if len(block) > rank:
        message = f"the block {block} has more extents than the {rank} axes given; drop some"
        raise SchemeError(message, field="block", value=block, fix="drop the leading extents")
    return (1,) * (rank - len(block)) + block


def refusal(
    rule: Rule,
    case: object,
    arguments: dict[str, Any],
    kind: type[SchemeError] = SchemeError,
) -> SchemeError:
    """Return the error for a broken rule, with the nearest valid scheme worked out."""
    reason, fix = cut(rule.reason.format(s=case)), rule.fix.format(s=case)
    nearest = _nearest(rule, case, arguments)
    hint = f" (nearest: {cut(str(nearest))!r})" if nearest is not None else ""
    given = arguments.get(rule.field, getattr(case, rule.field, None))
    return kind(f"{reason}; {fix}{hint}", field=rule.field, value=given, fix=fix, nearest=nearest)


def _nearest(rule: Rule, case: object, arguments: dict[str, Any]) -> Scheme | None:
    """Apply a rule's change; where that uncovers another fault, take what is nearest to that."""
    changes = None if rule.change is None else rule.change(case)
    if changes is None:
        return None
    try:
        return Scheme(**arguments | changes)
    except SchemeError as error:
        return error.nearest


def _defaults(scheme: Scheme) -> dict[str, Any]:
    """Return what each argument is when it is left out."""
    store = default_store(scheme.value)
    return dict.fromkeys(scheme.__annotations__) | {
        "mode": "symmetric",
        "store": store,
        "pack_axis": 0,
    }


def _read_word(word: str, text: str, arguments: dict[str, Any]) -> None:
    """Read one word of a scheme's text into the arguments of Scheme."""
    key, equals, given = word.partition("=")
    new: dict[str, Any]
    if not equals and key in {"symmetric", "affine", "lookup"}:
        new = {"mode": key}
    elif key == "block" and given:
        extents, _, scale = given.partition(":")
        new = {"block": _read_numbers(extents, "x", int, text), "block_scale": scale or None}
    elif key == "tensor" and given:
        new = {"tensor_scale": given}
    elif key == "store" and given:
        new = {"store": given}
    elif key == "pack_axis" and given:
        new = {"pack_axis": _read_numbers(given, " ", int, text)[0]}
    elif key == "table" and given:
        new = {"table": given if given in TABLES else _read_numbers(given, ",", float, text)}
    else:
        raise _bad_text(text, f"the word {word!r} is not part of a scheme")
    if new.keys() & arguments.keys():
        raise _bad_text(text, f"{key!r} is said twice")
    arguments.update(new)


def _read_numbers(given: str, separator: str, kind: type[int | float], text: str) -> Any:
    try:
        return tuple(kind(part) for part in given.split(separator))
    except ValueError:
        raise _bad_text(text, f"{given!r} is not a number") from None


def _bad_text(text: object, reason: str) -> SchemeError:
    fix = 'write for example "Q4S block=32:F16", "U8 affine" or a preset: ' + ", ".join(PRESETS)
    return SchemeError(f"{cut(reason)}; {fix}", field="scheme", value=text, fix=fix)


def _preset_refusal(value: object) -> SchemeError | None:
    """Return the error of a preset's name that stands in the place of a value type."""
    if not isinstance(value, str) or value not in PRESETS:
        return None
    fix = f"use PRESETS[{value!r}], Scheme.parse({value!r}), or the text itself"
    message = f"{value!r} is a preset, not a value type; {fix}"
    return SchemeError(message, field="value", value=value, fix=fix, nearest=PRESETS[value])


def _unknown_name(name: str) -> SchemeError:
    fix = f"use a preset ({', '.join(PRESETS)}) or a value type ({', '.join(VALUES)})"
    near, nearest = closest(name, [*PRESETS, *VALUES]), None
    try:
        nearest = None if near is None else Scheme.parse(near)
    except SchemeError as error:
        nearest = error.nearest
    message = f"{cut(repr(name))} is neither a preset nor a value type; {fix}"
    return SchemeError(message, field="scheme", value=name, fix=fix, nearest=nearest)


PRESETS: dict[str, Scheme] = {
    "int8": Scheme("Q8S"),
    "uint8": Scheme("U8", mode="affine"),
    "int4": Scheme("Q4S", block=32, block_scale="F16"),
    "ternary": Scheme("Q2S"),
    "fp8": Scheme("E4M3"),
    "fp8_block": Scheme("E4M3", block=(128, 128), block_scale="F32"),
    "mxfp8": Scheme("E4M3", block=32, block_scale="UE8M0"),
    "mxfp4": Scheme("E2M1", block=32, block_scale="UE8M0"),
    "nvfp4": Scheme("E2M1", block=16, block_scale="UE4M3", tensor_scale="F32"),
    "nf4": Scheme("U4", mode="lookup", block=64, block_scale="F32", table="nf4"),
}
