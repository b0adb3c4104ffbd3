"""One profile for all property tests: a shared machine has no say in what holds."""

from hypothesis import settings

settings.register_profile("halftone", deadline=None, print_blob=True)
settings.load_profile("halftone")
