"""python -m headlane.jobs embed|translate …: see _main.py."""

import sys

from ._main import main

if __name__ == "__main__":
    sys.exit(main())
