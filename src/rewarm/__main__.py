"""`python -m rewarm`: the command `rewarm`, for where its script is not on the path."""

from __future__ import annotations

from rewarm.cli import main

if __name__ == "__main__":
    main()
