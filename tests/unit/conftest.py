"""Settings for all unit tests."""

from hypothesis import settings

# A test says what comes out, never how long it takes: the machine may be busy.
settings.register_profile("unit", deadline=None, max_examples=60)
settings.load_profile("unit")
