"""What is durable: the store of a site in a file or a database, and what reads it."""
