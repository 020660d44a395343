"""`python -m logcore` is the command `logcore`."""

import sys

from logcore.cli import main

if __name__ == "__main__":
    sys.exit(main())
