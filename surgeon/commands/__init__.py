"""One module or package per command: a request comes in, a typed result goes out, files are written.

Nothing here prints or parses arguments: that is `cli`. What several commands need lies in the rooms below.
"""
