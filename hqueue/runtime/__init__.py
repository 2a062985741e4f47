"""What Python and the operating system give: time, forks, memory.

It imports `hqueue.settings` and `hqueue.errors`.
"""
