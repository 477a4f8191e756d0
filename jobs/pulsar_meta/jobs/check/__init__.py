"""The doctor: what is wrong in a store, why, and the way out. Nothing is changed.

**Codes.** Each finding has a code (`codes.Code`): its severity, what it means, what a broker does about it in
the broker's own words, how it comes to be, what to do. Codes stand beside the checks that find them, in a
module for each group (`records`, `ledgers`, `cursors`, `orphans`, …); `catalogue` has them all, and
`docs/findings.md` is generated from there.

**One pass, little memory.** `/ledgers` is listed first (`listing`: an array with a row a ledger, no objects),
the records that name ledgers after it. Whoever names a ledger that the listing has not got, named it before
the listing began, or it is gone; a ledger that was created meanwhile is not in the listing and is not judged.
Topics and cursors stream by; of each only the ids of the ledgers that it names are kept (8 bytes each), so
that at the end the listing minus the named is what nobody names. Findings stream out.

**Suspected, then read again.** A check is a function of a `Sight`: what was read of one topic, its cursors
and ledgers. In the pass a sight has the record alone, or the record and one cursor, and what the listing
says of its ledgers. What a check finds there is only suspected: the topic is then read again whole, its
ledgers' metadata first and its records after, and the same checks run once more. What they find then is
reported. So a finding stood at two times, and severities that need all cursors ("everybody has read it")
have them.

**Silence.** What could not be looked at (no entries given, no `/ledgers` in this store, a state that lies in
a ledger that is not here) is counted with its reason and said, never passed over and never guessed at.
"""
