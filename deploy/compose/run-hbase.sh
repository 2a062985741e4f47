#!/bin/sh
# Starts the local server, stays while it runs, and stops it on SIGTERM.
trap 'hqueue local stop; exit 0' TERM INT
hqueue local start || exit 1
while hqueue local status > /dev/null; do
    sleep 10 &
    wait $!
done
hqueue local status
exit 1
