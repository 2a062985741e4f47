"""A move of topics' metadata to another store, explored: every order of what writers and those that
move it do, and suffer.

`world` is one record, in each place where it may lie, the state, and the writers' acknowledgements;
the tests take each rule out once.
"""
