"""A process that measures: ``python -m qnumba.bench REQUEST``. The command is ``qnumba bench``."""

import os
import sys

from qnumba.bench.run import answer


def main() -> None:
    """Write rows to standard output, and all that libraries print to standard error."""
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as rows:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        for line in answer(sys.argv[1]):
            print(line, file=rows, flush=True)


if __name__ == "__main__":
    main()
