"""Batches: the bytes of a header and of the bodies.

A batch is one row. Its header lies in ``log:batch``, the bodies of each of its topics in
``message:<topic>``. A message's ID is the header's base plus the message's position in the batch.
`hqueue.format.header`, `hqueue.format.cells` and `hqueue.format.columns` draw the layouts;
`hqueue.format.compression` compresses. An unknown version, codec, flag or layout is an
`UnsupportedFormatError`.
"""
