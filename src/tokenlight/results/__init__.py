"""Results as plain data: explanations, explained answers, tables. They do not need the model they are about."""
