"""The demo: real messages through a real HBase, and a picture of what happened."""
