"""Kernels that compute on a GPU what the plain modules say; each has its twin there and a test that they agree."""
