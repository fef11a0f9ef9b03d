"""What a consumer promises, on every kind of broker."""
