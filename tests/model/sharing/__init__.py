"""How consumers of a share group part a partition, explored: every order of what they do, see late,
and suffer.

`consumer` is one of them: the library's own code over a partition of a few messages; `world` is the
group's record, the consumers and what is on its way between them; the explorer is that of groups;
`rules` are edits of the library's source, and the tests take each rule out once.
"""
