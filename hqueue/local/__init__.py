from hqueue.local.lifecycle import attach, reset, start, status, stop
from hqueue.local.server import LocalServer
