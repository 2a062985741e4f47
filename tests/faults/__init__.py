"""Faults on a real cluster: many processes write and read while servers die.

``make test-faults`` runs it: `workload` starts producers and readers as processes of their own,
each writing down its operations (`history`); `nemesis` harms servers, processes and connections
by a seeded schedule; after a drain `checker` proves from the histories alone that nothing was
lost, doubled or reordered; `report` draws what happened.
"""
