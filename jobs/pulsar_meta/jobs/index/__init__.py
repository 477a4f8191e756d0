"""First indexes of ledgers as their properties (PIP-404): read, written, checked."""
