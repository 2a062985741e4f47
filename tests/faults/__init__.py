"""Faults on a real cluster: many processes write and read while servers die.

``make test-faults`` runs it. `processes` starts producers and readers as processes of their own,
each writing down its operations (`history`). `nemesis` carries out a seeded `schedule`: what is
done to servers, connections and the table is in `server_faults`, what to producers and their
clocks in `producer_faults`, what to all others in `process_faults`, `topic_faults` and
`share_faults`, and to the versions of all in `upgrade_faults`. After a drain `checker` proves from
the histories alone that nothing was lost, doubled or reordered, and a checker of its own judges
push, groups, hubs, share groups and upgrades. `report` and `picture` tell what happened, and `page`
makes docs/reliability.md of the reports of several runs.
"""
