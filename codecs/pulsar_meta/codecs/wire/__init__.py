"""What travels on connections to brokers and bookies."""
