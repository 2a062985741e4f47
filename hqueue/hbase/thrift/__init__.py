"""HBase through its two Thrift gateways.

Which gateway to ask, the connections to them, and the store's ports on tables that lie behind them.
"""
