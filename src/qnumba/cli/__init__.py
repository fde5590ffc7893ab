"""The command line ``qnumba``: quantize files, and see what it costs and what it saves."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from qnumba.cli.arguments import WITH_KERNELS, parser
from qnumba.cli.files import UsageError
from qnumba.cli.show import clean, noting_compilation, spoken, strict_json
from qnumba.errors import QuantizationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DONE, REFUSED, USAGE = 0, 1, 2
# as a shell reports a program that a signal ended: 128 and the signal's number
INTERRUPTED, PIPE_CLOSED, TERMINATED = 130, 141, 143


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; default: those of the process.

    Returns
    -------
    int
        0: done. 1: the data or the scheme were refused. 2: the command line makes no sense.
        130, 141, 143: interrupted, nobody reads the output any more, terminated.
    """
    if hasattr(sys.stdout, "reconfigure"):  # a name in a file may be more than the terminal knows
        sys.stdout.reconfigure(errors="backslashreplace")
    words = sys.argv[1:] if argv is None else argv
    if not words:
        parser().print_help(sys.stderr)
        return USAGE
    args = parser().parse_args(words)
    try:
        noting = noting_compilation() if args.command in WITH_KERNELS else nullcontext()
        with _ending_on_sigterm(), noting:
            result = args.run(args)
            _print(json.dumps(strict_json(result), indent=2) if args.json else args.show(result))
    except BrokenPipeError:
        return PIPE_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except UsageError as error:
        return _refuse(f"{args.command}: {error} (see qnumba {args.command} --help)", USAGE)
    except (QuantizationError, OSError, MemoryError) as error:
        return _refuse(_message(error), REFUSED)
    return DONE if result.get("ok", True) else REFUSED


def _print(text: str) -> None:
    """Write the result; a closed pipe and a full disk show here, not at exit."""
    try:
        print(text, flush=True)
    except OSError as error:
        error.filename = "standard output"
        _forget_stdout()
        raise


def _refuse(message: str, status: int) -> int:
    print("qnumba:", clean(" ".join(message.split())), file=sys.stderr)
    return status


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return spoken(str(error)) or type(error).__name__


def _forget_stdout() -> None:
    """Point standard output nowhere, so that Python's own flush at exit does not fail again."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


@contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """Make SIGTERM unwind like Ctrl-C does, so that half-written files are removed."""

    def end(*_: Any) -> None:
        raise SystemExit(TERMINATED)

    try:
        before = signal.signal(signal.SIGTERM, end)
    except ValueError:  # only the main thread may, and tests may run elsewhere
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
