"""Damage and contradicting evidence, in pairs, on copies of what real brokers and bookies wrote."""
