"""A site as a durable asynchronous service."""
