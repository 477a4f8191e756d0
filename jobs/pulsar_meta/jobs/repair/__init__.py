"""Repairs: a verb for each wound, each in a file of its own.

A verb is a function that looks at a store, at entries where these are given, and at what was asked for, and
returns a `Repair` (`repair`): the values that change, each as it was read, with what becomes of it. It writes
nothing. What is written goes the one way (`jobs/rewrite/run`): plan, guards, compare-and-set, undo. A value
that is not there yet is one of version ABSENT, and undo removes it; a value that moved since it was looked at
is left alone, since everything else was decided in its light.

A repair says what it loses. Nothing is ever deleted from bookies, and no ledger is fenced. What a broker
heals by itself as well has no verb.
"""
