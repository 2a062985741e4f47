"""``python -m hqueue`` is ``hqueue``."""

import sys

from hqueue.cli import main

sys.exit(main())
