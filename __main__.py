"""`python -m ptxmotion` is the command `ptxmotion`.

``python -m`` puts the current folder first in `sys.path`. The command imports nothing from it.
"""

import os
import sys

if __name__ == "__main__":
    if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
        del sys.path[0]
    from .cli import main

    sys.exit(main())
