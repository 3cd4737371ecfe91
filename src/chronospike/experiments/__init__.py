"""Methods side by side: many fits of one graph, each a cell with a result of its own, and the tables they make."""
