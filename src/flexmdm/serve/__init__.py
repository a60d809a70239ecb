"""A model that several people use at once: one batch for all their requests, and an API that existing clients speak."""
