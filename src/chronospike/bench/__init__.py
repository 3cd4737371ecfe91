"""How fast it is here, how fast it could be, and where the time goes."""
