"""The errors of our own; everything else is a ValueError or TypeError that says what to do."""


class UnsupportedModelError(ValueError):
    """The model cannot be recorded exactly, so tokenlight refuses instead of returning a wrong number."""


class NothingToRead(UnsupportedModelError):
    """The model has none of what a method reads, or not one for each block: the method is not defined for it."""
