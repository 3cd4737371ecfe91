"""Neighbourhoods of a batch at every step: the hybrid sampler, its two backends, and batches."""
