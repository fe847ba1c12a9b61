"""What policies and extensions decide, kept as records: `python -m golden.write` wrote them.

A record changes only in a commit of its own that names the finding or the rule that changed. It is
never rewritten to make a failing test pass. A configuration may be spelled in other keys if its
records stay the same; a door that learns to take a configuration adds a record.
"""
