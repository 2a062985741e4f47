"""How the message is found that ends its subscriber's process, explored: every order of calls,
ends, time-outs and restarts.
"""
