"""The rows that every client sends, and where the sites are. The first argument is a port each."""

import sys

ROWS = [[0.25, 0.75], [2.0, 1.0], [0.0, -1.5]]  # of the site `rows`: features a and b
SIZES = [1.5, 20.0, 30.0]  # of the site `words`
COLOURS = ["red", "grün", "red"]
CONTEXTS = [[0.1], [0.5], [0.9]]
HOSTS = {
    name: f"127.0.0.1:{port}" for name, port in (one.split("=") for one in sys.argv[1].split(","))
}
