"""`factorizer doctor`."""

from __future__ import annotations

from rich.markup import escape

from factorizer.commands import options
from factorizer.commands.console import print_json, print_line
from factorizer.terminal import SafeConsole


def doctor(json: options.Json = False) -> None:
    """Report versions, devices, memory, and which optional parts are present or missing."""
    from factorizer.doctor import examine

    with SafeConsole(stderr=True).status("Looking at this machine"):
        findings = examine()
    if json:
        print_json([finding.as_dict() for finding in findings])
        return
    for finding in findings:
        mark = "[green]ok     [/]" if finding.present else "[yellow]missing[/]"
        remedy = "" if finding.present else f" ({finding.remedy})"
        print_line(f"{mark} {finding.name:<15} {escape(finding.found + remedy)}")
