"""``python -m qnumba`` is the command ``qnumba``."""

import sys

from qnumba.cli import main

if __name__ == "__main__":
    sys.exit(main())
