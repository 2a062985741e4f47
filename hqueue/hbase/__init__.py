"""All that speaks to HBase: its two Thrift gateways, behind the log's ports.

Every error is translated here, and every time-out set.
"""

from hqueue.hbase.appends import TableAppends
from hqueue.hbase.gateways import Gateways
from hqueue.hbase.locations import Locations, RegionLocation, region_locations
from hqueue.hbase.reads import TableReads
from hqueue.hbase.tables import Tables

__all__ = [
    "Gateways",
    "Locations",
    "RegionLocation",
    "TableAppends",
    "TableReads",
    "Tables",
    "region_locations",
]
