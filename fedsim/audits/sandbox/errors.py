"""What goes wrong in somebody else's code."""


class AppFailedError(RuntimeError):
    """The code that is audited failed, or did not do what it is to do."""
