"""How much memory a run will take, found out before it starts."""
