"""Many entries decoded at once into columns. Needs NumPy."""
