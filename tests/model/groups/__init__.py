"""The protocol of consumer groups, explored: every order of what members do, see late, and suffer.

`world` is a group over a service that keeps members, owners and offsets; `explorer` tries out all
that can happen next, in every state that can be reached; the tests take each rule out once.
"""
