"""Effects of the columns of a table in a fitted model, and the variables that they read."""
