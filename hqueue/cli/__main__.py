"""``python -m hqueue.cli`` is ``hqueue``."""

import sys

from hqueue.cli.app import main

sys.exit(main())
