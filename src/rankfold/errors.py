"""The one exception a person is meant to read."""


class UserError(ValueError):
    """Bad input, said in one sentence; ``hint`` says what to do about it."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
