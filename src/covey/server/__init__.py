"""The network edge: HTTP for clients and peers, TLS, tokens, keys, metrics, doctor."""
