"""The exceptions. Each says everything that is wrong at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Problem(NamedTuple):
    """One thing that is wrong, and what to do about it."""

    what: str
    hints: tuple[str, ...] = ()


class Error(Exception):
    """Any error of Weighbridge. `str()` of it is all of it, as people read it."""

    #: Everything that is wrong.
    problems: tuple[Problem, ...]

    def __init__(self, message: str, problems: Iterable[tuple[str, Iterable[str]]] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(Problem(what, tuple(hints)) for what, hints in problems)

    def __reduce__(self) -> tuple[type[Error], tuple[str, tuple[Problem, ...]]]:
        return type(self), (str(self), self.problems)

    @property
    def hint(self) -> str | None:
        """The hint of the first problem that has one."""
        return next((hint for problem in self.problems for hint in problem.hints), None)


class CheckpointError(Error):
    """The checkpoint cannot be opened."""


class PlanError(Error):
    """The checkpoint does not fit its model, or cannot be planned as asked."""


class UnknownModelError(PlanError):
    """No family claims the checkpoint. It can be planned with `layout="source"` all the same."""


class LoadError(Error):
    """Loading failed: a file that cannot be read or has changed, memory, data that cannot be meant."""


class ConvertError(Error):
    """The checkpoint cannot be written as asked, or not without losing something."""


class RunError(Error):
    """The model cannot be run, or a text cannot be made tokens."""


class MisuseError(Error, ValueError):
    """Something impossible was asked for: neither the model nor a file is wrong."""
