"""Hubs that take a topic over from each other, in every order: what the log and the ranges hold.

The log is as `tests/model` shows it to be: of any number of writers one wins a slot. What is shown
here is which rules of `hqueue.log.owned_writer`, and of a take-over, it needs so that no message is
lost.
"""
