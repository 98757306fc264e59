"""The queue's DELEGATEs as folders of files, for agents that know no queue: a picture of the database, and a way in.

The database is the truth. A move is made there first and by a rename here after it; what a crash kept from happening
is made up for by the next look, as the log of moves says how far the folders have come.
"""

from orch.folders.exchange import Exchange

__all__ = ["Exchange"]
