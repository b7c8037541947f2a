"""The errors that a user sees as one line."""


class InterruptedRunError(Exception):
    """The user stopped a run. One line says what is kept and how to go on; exit status 130."""


class InputError(ValueError):
    """Bad input. One line says what is wrong and how to mend it; exit status 2."""
