"""Plants small faults into the library and the worker, one at a time, and says which are caught.

A suite is as good as the faults that it finds. Here a seed chooses some places where a comparison,
a condition, a sign or a call can be wrong. The tests that need no server run once over a copy of
the tree with a probe at each of these places, which shows which tests reach it, also by processes
that they start. Then each fault is planted alone, and the tests that reach it run until one fails;
one that hangs has failed, too. A fault that survives shows a promise that no test holds, or a line
that nothing needs.

    python -m tests.mutants --seed 1 --count 30
    python -m tests.mutants --count 5 --only hqueue/log

Why a tool of our own: mutmut (3.8) holds all variants of a function in one module, which tests that
read or edit their subject's source (as those of the model) don't take; cosmic-ray (8.7) edits the
tree that one works in, and leaves out no calls; neither draws a sample.
"""
