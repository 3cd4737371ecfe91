"""Comparing methods: many fits on one graph, each a cell with its own result, and tables of the results."""
