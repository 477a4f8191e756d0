"""The binary protocols of brokers and bookies."""
