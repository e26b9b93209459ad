"""python -m headlane.torch script.py: see _program.py."""

from ._program import main

if __name__ == "__main__":
    main()
