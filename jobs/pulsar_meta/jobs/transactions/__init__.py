"""Transactions: the outcomes of published messages, and pending acknowledgments."""
