"""The measuring engine: networks at their settings, on the same samples, give scores per sample and paired gains.

`engine` measures `variants`; `runner` lets settings compete on it, with a journal.
What is measured and what follows from it is decided in `commands`; what a metric computes, in `metrics`.
"""
