"""What `check` finds: what is wrong in a store, why, and the way out. Nothing is changed.

**Codes.** Each finding has a code (`codes.Code`): its severity, what it means, what a broker does about it in
the broker's own words, how it comes to be, what to do. Codes stand beside the checks that find them, in a
module for each group (`records`, `ledgers`, `cursors`, `orphans`, …); `catalogue` has them all, and
`docs/findings.md` is generated from there.

**One pass, little memory.** `/ledgers` is listed first (`listing`: seven numbers a ledger, no objects), the
records that name ledgers after it. Whoever names a ledger that the listing has not got, named it before
the listing began, or it is gone; a ledger that was created meanwhile is not in the listing and is not judged.
Values (`value_pass`), topics and cursors (`topic_pass`) stream by; of each only the ids of the ledgers that
it names are kept (`seen`, 8 bytes each), so that at the end the listing minus the named is what nobody names.
Findings stream out. `passes` makes them in this process, `jobs.spark.check` over pieces of the store; `run`
says what comes when, and what only all together can say.

**Some topics.** Of topics that are named only the ledgers that their records name are read (`by_need`), and
what no record names is said to be not checked. The first topics of a whole store are looked at like that,
too, before all ledgers are listed; a finding is not reported again.

**Suspected, then read again.** A check is a function of a `Sight`: what was read of one topic, its cursors
and ledgers. In the pass a sight has the record, the cursors that follow it, and what is known of its ledgers.
What a check finds there is only suspected: the topic is then read again whole, its ledgers' metadata first
and its records after, and the same checks run once more. What they find then is reported. So a finding stood
at two times, and severities that need all cursors ("everybody has read it") have them.

**Silence.** What could not be looked at (no entries given, no `/ledgers` in this store, a state that lies in
a ledger that is not here) is counted with its reason and said, never passed over and never guessed at.
"""
