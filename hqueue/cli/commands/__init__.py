"""The commands, a file each, and what only they need.

They import the frame (the modules beside this package) and the library, and each other where one
continues another. The shell and the demo stand above them.
"""
