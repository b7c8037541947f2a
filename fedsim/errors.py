"""The error that a user can mend."""


class InputError(ValueError):
    """Bad input: one line that says what is wrong and how to mend it; exit status 2."""
