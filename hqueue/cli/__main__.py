"""``python -m hqueue.cli`` is ``hqueue``."""

import sys

from hqueue.cli import main

sys.exit(main())
