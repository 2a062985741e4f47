"""What is written for one process: its XML settings, its logging, and its command line."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from xml.etree import ElementTree

from hqueue.local.home import Home
from hqueue.local.java import MODULE_OPTIONS, Java
from hqueue.local.process import ProcessPlan, home_mark

__all__ = [
    "FULL_COMPILER",
    "LARGE_HEAP",
    "QUICK_COMPILER",
    "SMALL_HEAP",
    "TOOL_LOGGING",
    "Launcher",
    "Xml",
]

Xml = Mapping[str, object]
"""Hadoop's settings by name. True and False are written in lower case."""

QUICK_COMPILER = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=48m")
"""For processes off the data path: they start sooner and never get fast."""

FULL_COMPILER = ("-XX:ReservedCodeCacheSize=128m",)

SMALL_HEAP = ("-XX:+UseSerialGC",)
LARGE_HEAP = (
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    # What is larger than half a region gets one or more of its own: HBase's memory of a table comes
    # in pieces of 2 MB, which filled a heap of smaller regions twice as fast.
    "-XX:G1HeapRegionSize=16m",
    "-XX:MetaspaceSize=128m",
)
"""Garbage collection. After 700 MB of batches of a megabyte the serial collector had stopped a
server for up to 190 ms (heap 1 GB), G1 for up to 41 (2 GB)."""

_LOGGING = """\
log4j.rootLogger=INFO,file
log4j.appender.file=org.apache.log4j.RollingFileAppender
log4j.appender.file.File={log}
log4j.appender.file.MaxFileSize=10MB
log4j.appender.file.MaxBackupIndex=4
log4j.appender.file.layout=org.apache.log4j.EnhancedPatternLayout
log4j.appender.file.layout.ConversionPattern=%d{{yyyy-MM-dd'T'HH:mm:ss,SSS}} %-5p [%t] %c{{2}}: %m%n
log4j.logger.BlockStateChange=WARN
log4j.logger.org.apache.hadoop.hdfs.StateChange=WARN
log4j.logger.org.apache.hadoop.hdfs.server.datanode.DataNode.clienttrace=WARN
log4j.logger.org.apache.hadoop.hdfs.server.namenode.FSNamesystem.audit=WARN
log4j.logger.org.apache.hadoop.hdfs.server.blockmanagement=WARN
log4j.logger.org.apache.hadoop.metrics2=WARN
log4j.logger.org.apache.hadoop.util.NativeCodeLoader=ERROR
log4j.logger.org.apache.zookeeper.ClientCnxn=WARN
"""

TOOL_LOGGING = "tool-log4j.properties"
"""In the folder of the settings: how a tool logs that runs beside the servers."""

_TOOL_LOGGING = """\
log4j.rootLogger=INFO,stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.EnhancedPatternLayout
log4j.appender.stderr.layout.ConversionPattern=%-5p %c{2}: %m%n
log4j.logger.org.apache.zookeeper=WARN
log4j.logger.org.apache.hadoop.util.NativeCodeLoader=ERROR
"""


@dataclasses.dataclass(frozen=True)
class Launcher:
    """Plans the processes of one home, with these jars on the class path."""

    home: Home
    java: Java
    jars: Path
    gateway_jars: Path | None = None
    """Those of the gateways, if they have others."""
    kdc_jars: Path | None = None
    """Those of the KDC, if there is one."""

    def of_gateways(self) -> Launcher:
        """What plans the gateways."""
        return dataclasses.replace(self, jars=self.gateway_jars or self.jars)

    def of_kdc(self) -> Launcher:
        """What plans the KDC."""
        return dataclasses.replace(self, jars=self.kdc_jars or self.jars)

    def clear(self) -> None:
        """Remove what was written for earlier starts."""
        shutil.rmtree(self.home.conf, ignore_errors=True)
        self.home.conf.mkdir(parents=True)
        self.home.logs.mkdir(parents=True, exist_ok=True)
        self.home.temporary.mkdir(parents=True, exist_ok=True)
        (self.home.conf / TOOL_LOGGING).write_text(_TOOL_LOGGING, encoding="utf-8")

    def plan(
        self,
        name: str,
        main_class: str,
        *arguments: str,
        host: str,
        ports: Mapping[str, int],
        heap_mb: int,
        options: Iterable[str] = (),
        collector: Iterable[str] = SMALL_HEAP,
        hbase: Xml | None = None,
        hdfs: Xml | None = None,
        stage: int = 0,
        ready_text: str = "",
    ) -> ProcessPlan:
        """Write a process's settings below the home and plan how to start it."""
        folder = self.home.conf / name
        folder.mkdir(parents=True, exist_ok=True)
        _write_xml(folder / "hbase-site.xml", hbase or {})
        _write_xml(folder / "core-site.xml", hdfs or {})
        _write_xml(folder / "hdfs-site.xml", hdfs or {})
        log = self.home.logs / f"{name}.log"
        (folder / "log4j.properties").write_text(_LOGGING.format(log=log), encoding="utf-8")
        command = (
            str(self.java.executable),
            *MODULE_OPTIONS,
            home_mark(self.home.path),
            f"-Dhqueue.local.process={name}",
            f"-Xmx{heap_mb}m",
            "-Xss512k",
            *collector,
            "-XX:+ExitOnOutOfMemoryError",
            "-XX:-UsePerfData",
            f"-XX:ErrorFile={self.home.logs}/{name}-crash.out",
            f"-Djava.io.tmpdir={self.home.temporary}",
            *options,
            *("-cp", f"{folder}:{self.home.conf}:{self.jars}/*"),
            main_class,
            *arguments,
        )
        return ProcessPlan(name, host, dict(ports), command, stage, str(log), ready_text)


def _write_xml(path: Path, values: Xml) -> None:
    root = ElementTree.Element("configuration")
    for name, value in values.items():
        written = str(value).lower() if isinstance(value, bool) else str(value)
        entry = ElementTree.SubElement(root, "property")
        ElementTree.SubElement(entry, "name").text = name
        ElementTree.SubElement(entry, "value").text = written
    ElementTree.indent(root)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
