"""`factorizer models`."""

from __future__ import annotations

from factorizer.commands import options
from factorizer.commands.console import print_json, print_line
from factorizer.models.registry import SYSTEMS


def models(json: options.Json = False) -> None:
    """List the systems that can be built, one line each."""
    if json:
        print_json([{"name": name, "summary": system.summary} for name, system in SYSTEMS.items()])
        return
    for name, system in SYSTEMS.items():
        print_line(f"[bold]{name:<18}[/] {system.summary}")
