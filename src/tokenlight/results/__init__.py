"""What comes out, as plain data: an explanation, a table. Independent of the model it came from."""
