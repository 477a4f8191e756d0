"""`browse`: looking around in a store, and in the entries, on one screen."""

from __future__ import annotations

import os
import sys

from pulsar_meta.cli.options import AnyWhere, EntriesUrls, ShowPasswords, StoreUrl
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.codecs.errors import UsageError


def browse(
    shell: Shell,
    where: AnyWhere = None,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    show_passwords: ShowPasswords = False,
) -> None:
    """Look around in a store on one screen: a tree at the left, what lies at a place of it at the right.

    The right side has the value, decoded; of a topic the ledgers on a line of time, the subscriptions with
    what they have acknowledged as strips, and with --entries the entries, page by page; and what check finds,
    which is marked in the tree, too. Keys are at the bottom, and 80 by 24 characters are enough. Nothing is
    changed; sums, searches and checks go over the store only when they are asked for, and Escape stops them.

    Examples:
      pulsar-meta browse --store zk://zk1:2181 --entries bookie:
      pulsar-meta browse topic orders --store rocksdb:data/metadata
    """
    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UsageError("browse is for a terminal: in a pipe or a script take ls, get, tree, check")
    url, urls = shell.store_url(store), tuple(entries or shell.settings.entries)
    from pulsar_meta.cli.browse.app import Browser
    from pulsar_meta.cli.browse.opened import Places

    browser = Browser(Places(url, urls, show_passwords), where or ())
    browser.run()
    ended = browser.end()
    if browser.fault is not None:
        raise browser.fault
    if not ended:
        # A server that does not answer holds a thread: Python would wait for its libraries.
        sys.stdout.flush()
        os._exit(Exit.OK)
