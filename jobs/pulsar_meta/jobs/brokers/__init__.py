"""The brokers that a store knows: who is registered, and what a broker.conf would publish."""
