"""Runs a program that is killed, with all that it started, when a function that it calls returns.

Options:
    program: its text.
    call: what it calls, as `package.module:Class.function`; nothing kills it without.
    conf: settings of a session of Spark, which the program finds as `spark`; none without.
"""

from __future__ import annotations

import json
import os
import pkgutil
import signal
import sys

from pyspark.sql import SparkSession


def kill_after(call: str) -> None:
    owner, _, name = call.rpartition(".")
    kind = pkgutil.resolve_name(owner)
    whole = getattr(kind, name)

    def killing(*arguments: object, **named: object) -> None:
        whole(*arguments, **named)
        os.killpg(os.getpgid(0), signal.SIGKILL)

    setattr(kind, name, killing)


def main() -> None:
    options = json.loads(sys.argv[1])
    if "call" in options:
        kill_after(options["call"])
    names = {}
    if options["conf"]:
        builder = SparkSession.builder.config(map=options["conf"])
        names["spark"] = builder.getOrCreate()
    exec(compile(options["program"], "program", "exec"), names)


main()
