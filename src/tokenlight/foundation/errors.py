"""The one error of our own; everything else is a ValueError or TypeError that says what to do."""


class UnsupportedModelError(ValueError):
    """The model cannot be recorded exactly, so tokenlight refuses instead of returning a wrong number."""
