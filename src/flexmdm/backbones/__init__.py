"""Networks that predict the unmasking posterior and the expected insertions."""
