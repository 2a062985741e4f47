"""The election of topics' owners, explored: every order of what hubs do, and suffer.

`world` is a topic whose owner's record lies where nothing is ephemeral, and the list of available
hubs; the tests take each rule out once.
"""
