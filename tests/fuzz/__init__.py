"""A fuzzer over everything that comes off the wire, out of a cell, or from a person.

``make fuzz`` runs it; `__main__` says how. A target (`target`) is a hypothesis strategy for bad
inputs and what has to hold for each: it ends, within a bound of time and of memory, and raises
nothing but an `HQueueError`.

    cells          row keys, headers and cells, as messages and as Arrow
    log            reading, checking, following and appending, over a store of forged rows
    wire           a gateway pair on real sockets whose answers are spoiled
    native         a region server on real sockets whose answers are spoiled
    native-loop    the same by asyncio's transport: callers are cancelled, and both agree
    sasl           a server's part of SASL's handshake and wrapped frames, damaged and cut anywhere
    digest-md5     a server's challenge and proof of DIGEST-MD5
    tls            a server's part of TLS's, likewise: its alerts come after the first request, too
    tls-port       and what strangers say to a port that demands certificates
    ports          the calls of strangers, at a subscriber's port and at a worker's
    hub            and at a hub's
    texts          settings, environment, files, moments, TTLs, the shell's syntax, framing
    command_line   every command with any arguments and input, against that gateway

**Why hypothesis, and no fuzzer that is guided by coverage.** Such a one (atheris, which has wheels
for Python 3.11) finds by chance what a check lets pass. Here a checksum stops all but one input in
four billion, so the inputs must be built to fit anyway: damage first, and then the sizes and
checksums that go with it (`rows`, `damage`). Built so, they reach every branch of the codecs
within seconds, so there is nothing left to guide. And hypothesis shrinks what it finds, draws the
same inputs from the same seed, and runs the same targets among the tests (`test_targets`); atheris
owns its process, ends at the first finding, and instruments neither threads nor the C code of
Thrift and Arrow. HypoFuzz takes neither a seed nor a duration.
"""
