"""Work on entries by several processes of this machine, its results in the order of the work."""
