"""The arguments of every command."""

from __future__ import annotations

import math
import re
from argparse import (
    ArgumentParser,
    ArgumentTypeError,
    Namespace,
    RawDescriptionHelpFormatter,
)
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from qnumba import __version__
from qnumba.accuracy import add_arguments as _add_accuracy
from qnumba.accuracy import run_accuracy, show_accuracy
from qnumba.cli.bench import add_bench, run_bench, show_bench
from qnumba.cli.compare import run_compare, run_demo, show_compare, show_demo
from qnumba.cli.convert import run_dequantize, run_quantize, show_dequantize, show_quantize
from qnumba.cli.inspect import (
    run_check,
    run_info,
    run_presets,
    show_check,
    show_info,
    show_presets,
)
from qnumba.formats import FLOATS
from qnumba.io.files import MAX_INT
from qnumba.params import Method, Nonfinite, Options, Rounding, ScaleRounding

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMES = """\
a scheme is the name of a preset (see qnumba presets) or words:
  Q4S block=32:F16                     integers of 4 bits, a float16 scale for each 32 values
  E2M1 block=16:UE4M3 tensor=F32       minifloats, scales in two levels
  U8 affine                            unsigned integers with a zero point
"""
EXAMPLES = """\
examples:
  qnumba demo
  qnumba compare weights.npy --schemes int8 nvfp4 "Q4S block=32:F16"
  qnumba quantize model.safetensors --scheme nvfp4 --include "*.weight" -o small.safetensors
  qnumba dequantize small.safetensors -o back.safetensors
"""


class Parser(ArgumentParser):
    """A parser that says what is wrong in one line."""

    def __init__(self, **given: Any) -> None:
        super().__init__(formatter_class=RawDescriptionHelpFormatter, allow_abbrev=False, **given)

    def error(self, message: str) -> NoReturn:
        """End with the status of a command line that makes no sense."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parser() -> ArgumentParser:
    """Return the parser of the whole command line."""
    top = Parser(
        prog="qnumba",
        description="Quantize arrays in .npy and .safetensors files.",
        epilog=EXAMPLES,
    )
    top.add_argument("--version", action="version", version=f"qnumba {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (summary, add_arguments, run, show) in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=SCHEMES if name in WITH_SCHEMES else None,
        )
        add_arguments(command)
        command.add_argument("--json", action="store_true", help="print JSON instead of text")
        command.set_defaults(run=run, show=show)
    return top


def _add_demo(command: ArgumentParser) -> None:
    command.add_argument("-o", "--output", help="keep the container here (.qnb)")


def _add_presets(_: ArgumentParser) -> None:
    """Add nothing: there is nothing to choose."""


def _add_quantize(command: ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE", help=".npy or .safetensors")
    command.add_argument("--scheme", required=True, help="what to quantize to")
    _add_output(command, ".qnb or .safetensors")
    _add_patterns(command, "quantize")
    _add_options(command)


def _add_dequantize(command: ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE", help=".qnb or .safetensors")
    _add_output(command, ".npy or .safetensors")
    command.add_argument("--dtype", choices=FLOATS, help="default: the dtype before quantization")


def _add_info(command: ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE", help=".npy, .safetensors or .qnb")


def _add_check(command: ArgumentParser) -> None:
    command.add_argument("scheme", metavar="SCHEME", help="a preset or the words of a scheme")
    command.add_argument("--shape", type=_shape, help="of the array, such as 4096x4096")
    command.add_argument("--dtype", help="of the array, such as float32 or bfloat16")
    _add_options(command)


def _add_compare(command: ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE", help=".npy or .safetensors")
    command.add_argument(
        "--schemes",
        nargs="+",
        action="extend",
        metavar="SCHEME",
        help="what to compare (default: the presets)",
    )
    _add_patterns(command, "compare")
    _add_options(command)


def _add_output(command: ArgumentParser, endings: str) -> None:
    command.add_argument("-o", "--output", metavar="OUT", required=True, help=endings)
    command.add_argument("--force", action="store_true", help="let OUT be FILE, and replace it")


def _add_patterns(command: ArgumentParser, verb: str) -> None:
    for name, what in (("include", f"{verb} only arrays"), ("exclude", f"do not {verb} arrays")):
        command.add_argument(
            f"--{name}",
            nargs="+",
            action="extend",
            default=[],
            metavar="PATTERN",
            help=f'{what} whose name matches, such as "*.weight"',
        )


def _add_options(command: ArgumentParser) -> None:
    choices = {
        "rounding": (Rounding, "ties of integer codes"),
        "scale_rounding": (ScaleRounding, "how scales are stored"),
        "nonfinite": (Nonfinite, "what becomes of NaN and infinity"),
        "method": (Method, "how ranges are found"),
    }
    defaults = Options()._asdict()
    for name, (allowed, what) in choices.items():
        command.add_argument(
            f"--{name.replace('_', '-')}",
            choices=get_args(allowed),
            default=defaults[name],
            help=f"{what} (default: {defaults[name]})",
        )


def _shape(text: str) -> tuple[int, ...]:
    """Read 384x384, 384,384 or () as a shape."""
    if text == "()":
        return ()
    words = re.split("[x,]", text.lower().strip("()[] ").removesuffix(","))
    if not all(re.fullmatch(r" *[0-9]{1,19} *", word) for word in words):
        raise ArgumentTypeError(f"{text!r} is not a shape; write 4096x4096, or () for a scalar")
    extents = tuple(map(int, words))
    if math.prod(extents) > MAX_INT:
        raise ArgumentTypeError(f"{text!r} is larger than any memory")
    return extents


Command = tuple[
    str,
    "Callable[[ArgumentParser], None]",
    "Callable[[Namespace], dict[str, Any]]",
    "Callable[[dict[str, Any]], str]",
]
COMMANDS: dict[str, Command] = {
    "demo": (
        "quantize weights of a small language model with every preset",
        _add_demo,
        run_demo,
        show_demo,
    ),
    "presets": ("list the schemes that have a name", _add_presets, run_presets, show_presets),
    "check": (
        "say whether a scheme is one and fits an array, and what would",
        _add_check,
        run_check,
        show_check,
    ),
    "info": ("say what a file holds", _add_info, run_info, show_info),
    "accuracy": (
        "measure every kind of scheme on synthetic and real weights",
        _add_accuracy,
        run_accuracy,
        show_accuracy,
    ),
    "bench": (
        "time every operation on this machine, beside loops that only move memory",
        add_bench,
        run_bench,
        show_bench,
    ),
    "compare": (
        "measure the error of several schemes on a file",
        _add_compare,
        run_compare,
        show_compare,
    ),
    "quantize": (
        "quantize the arrays of a file, and copy those that cannot be quantized",
        _add_quantize,
        run_quantize,
        show_quantize,
    ),
    "dequantize": (
        "turn the quantized arrays of a file back into numbers",
        _add_dequantize,
        run_dequantize,
        show_dequantize,
    ),
}
WITH_KERNELS = ("accuracy", "compare", "demo", "dequantize", "quantize")
WITH_SCHEMES = ("check", "compare", "quantize")
