"""All that speaks to HBase: its two Thrift gateways, behind the log's ports.

Every error is translated here, and every time-out set.
"""

from hqueue.hbase.thrift.appends import TableAppends
from hqueue.hbase.thrift.gateways import Gateways
from hqueue.hbase.thrift.locations import Locations, RegionLocation, region_locations
from hqueue.hbase.thrift.reads import TableReads
from hqueue.hbase.thrift.tables import Tables

__all__ = [
    "Gateways",
    "Locations",
    "RegionLocation",
    "TableAppends",
    "TableReads",
    "Tables",
    "region_locations",
]
