"""Whose fault it is: an error that a user can fix, or a bug of ours."""

from __future__ import annotations


class FactorizerError(ValueError):
    """Something that the user can fix: data, a run, a model, a preset or an option.

    It is raised on purpose. Its message says what was got, what is allowed, and what to do. Every
    other exception that leaves the library is a bug.

    Example:
        >>> try:
        ...     factorizer.load_preset("isles21")
        ... except factorizer.FactorizerError as error:
        ...     print(error)
        no preset is named 'isles21'; did you mean 'isles22'? Choose one of ...
    """


class RunError(FactorizerError):
    """A run that cannot start or resume as asked."""


class ModelError(FactorizerError):
    """A trained model that cannot be found or used."""
