"""No names for Python: the walkers are called from compiled modules."""
