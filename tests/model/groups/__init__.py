"""The protocol of consumer groups, explored: every order of what members do, see late, and suffer.

`world` is a group over a service that keeps members, owners and `offsets`; `member` is what each
knows, and `commits` what it must commit; `explorer` tries out all that can happen next, in every
state that can be reached; the tests take each of the `rules` out once.
"""
