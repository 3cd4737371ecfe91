"""The neurons and the neighbour attention compiled for CPUs; the meaning is that of their twins in `chronospike.nn`."""
