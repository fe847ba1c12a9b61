"""Sites at work: the request handler, the in-process network, the durable node."""
