"""`python -m burnish` is the `burnish` command."""

import sys

from burnish.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
