"""The producer: sends single messages and batches, waiting, with a future, or one-way."""
