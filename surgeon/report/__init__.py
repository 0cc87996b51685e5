"""Pages, pictures and sentences, rendered from the typed records in `results` and from nothing else.

Nothing is measured or decided here.
"""
