"""Results of an audit: one line per check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from dpvb.guards.errors import ModelFileError, ParameterError, check_integer, check_number
from dpvb.guards.untrusted import printable
from dpvb.guards.version import __version__


@dataclass(frozen=True)
class Check:
    """Result of one check of an audit, which uses only synthetic records.

    Attributes:
        subject: Model or part of the package.
        name: Name of the check.
        passed: Whether there is no finding. A check that compared nothing does not pass.
        measured, threshold: Measured and allowed value, in words.
        compared: Number of cases that could have shown a fault.
        false_alarm: Probability that a sound package fails this check; 0 for exact checks.

    Examples:
        >>> from dpvb.audit import Check
        >>> print(Check("my model", "norm of a row", True, "0.98", "at most 1", compared=40))
        ok      norm of a row: 0.98 (at most 1)
    """

    subject: str
    name: str
    passed: bool
    measured: str
    threshold: str
    compared: int
    false_alarm: float = 0.0

    def __post_init__(self) -> None:
        for text in (self.subject, self.name, self.measured, self.threshold):
            if not isinstance(text, str) or not text.isprintable():
                raise ParameterError(f"A check is described in printable text, got {text!r}.")
        if type(self.passed) is not bool:
            raise ParameterError(f"passed must be True or False, got {self.passed!r}.")
        check_integer("compared", self.compared, low=int(self.passed))
        check_number("false_alarm", self.false_alarm, low=0, high=1)

    @classmethod
    def of(
        cls,
        subject: str,
        name: str,
        faults: Iterable[str],
        measured: str,
        threshold: str,
        compared: int,
        false_alarm: float = 0.0,
    ) -> Self:
        """The check that found these faults, each named once; it passed if there are none and it compared something."""
        found = "; ".join(dict.fromkeys(faults)) or ("" if compared else f"nothing was compared: {measured}")
        return cls(subject, name, not found, printable(found or measured), threshold, compared, false_alarm)

    def __str__(self) -> str:
        alarm = f", false alarm {self.false_alarm:.0e}" if self.false_alarm else ""
        return f"{'ok     ' if self.passed else 'FINDING'} {self.name}: {self.measured} ({self.threshold}{alarm})"


@dataclass(frozen=True)
class Report:
    """All checks of an audit.

    Attributes:
        checks: Checks in order.
        version: Version of dpvb that was audited.

    Examples:
        >>> from dpvb.audit import Check, Report
        >>> report = Report((Check("my model", "norm of a row", False, "1.3", "at most 1", compared=40),))
        >>> report.passed, [check.name for check in report.findings]
        (False, ['norm of a row'])
    """

    checks: tuple[Check, ...]
    version: str = __version__

    def __post_init__(self) -> None:
        if not self.checks:
            raise ParameterError("A report needs at least one check.")
        if not isinstance(self.version, str) or not self.version.isprintable():
            raise ParameterError(f"version must be printable text, got {self.version!r}.")

    @property
    def findings(self) -> tuple[Check, ...]:
        """Checks that did not pass."""
        return tuple(check for check in self.checks if not check.passed)

    @property
    def passed(self) -> bool:
        """Whether there is no finding."""
        return not self.findings

    @property
    def subjects(self) -> tuple[str, ...]:
        """Audited models and parts, in order."""
        return tuple(dict.fromkeys(check.subject for check in self.checks))

    @property
    def summary(self) -> str:
        """The report in one line."""
        passed, alarm = len(self.checks) - len(self.findings), sum(check.false_alarm for check in self.checks)
        return (
            f"audit by dpvb {self.version}: {passed} of {len(self.checks)} checks passed; one of them fails by chance "
            f"with probability {alarm:.1g} at most"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return {"version": self.version, "passed": self.passed, "checks": [asdict(check) for check in self.checks]}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """Return the report from the result of `to_dict`.

        Raises:
            ModelFileError: If the facts do not form a report.
        """
        try:
            return cls(tuple(Check(**check) for check in facts["checks"]), facts["version"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelFileError("The file's audit report is damaged; save the model again.") from error

    def __str__(self) -> str:
        lines = []
        for subject in self.subjects:
            lines += [subject, *(f"  {check}" for check in self.checks if check.subject == subject)]
        return "\n".join([*lines, self.summary])
