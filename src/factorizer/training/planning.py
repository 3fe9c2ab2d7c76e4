"""`factorizer data plan`: a preset for a data set, with a training that fits into a given time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from factorizer.data.plan import PlannedData, plan_from_cases
from factorizer.errors import FactorizerError
from factorizer.files import require_ending, write_atomically
from factorizer.preset_files import to_yaml
from factorizer.progress import SILENT, Progress
from factorizer.training.budget import parse_budget


def plan_data(
    data: Path,
    *,
    out: Path | None = None,
    budget: str | None = None,
    device: str | None = None,
    mask_suffix: str | None = None,
    overwrite: bool = False,
    progress: Progress = SILENT,
) -> PlannedData:
    """Choose a preset for a data set: spacing, patch, network, intensities and regions.

    Without a budget the length of the training is the paper's. A `DataError` with all problems is
    raised if no case can be used.

    Args:
        data: The data set: its folder, or a CSV or JSON list of cases.
        out: A new .yaml file for the preset.
        budget: Plan a training that takes this long on this machine, such as 90m or 2h. A few
            training steps are timed for this.
        device: Where the training of a budget will compute: auto, cpu, cuda or mps. The default is
            auto.
        mask_suffix: The end of 2D masks' names, such as _1stHO. Otherwise the usual ones are tried.
        overwrite: Whether `out` is replaced if it exists.
        progress: Where lines and bars go.

    Returns:
        The cohort, the report on its cases, and the plan with its preset and reasons.

    Example:
        >>> planned = factorizer.plan_data(Path("strokes"), out=Path("strokes.yaml"))
        >>> planned.plan.preset.data.channels
        ('DWI', 'ADC')
    """
    if out is not None:
        require_ending("out", out, ".yaml", ".yml")
        if out.exists() and not overwrite:
            raise FactorizerError(f"{out} already exists; give another name, or overwrite it")
    if device is not None and budget is None:
        raise FactorizerError(f"device is {device!r}, but there is no budget; give both or neither")
    seconds = None if budget is None else parse_budget(budget)
    planned = plan_from_cases(data, mask_suffix=mask_suffix, progress=progress)
    if seconds is not None:
        planned = fit_budget(planned, seconds, device or "auto", progress)
    if out is not None:
        write_atomically(out, to_yaml(planned.plan.preset))
    return planned


def fit_budget(
    planned: PlannedData, seconds: float, device: str, progress: Progress
) -> PlannedData:
    """The plan with the network and the training that fit into a time."""
    from factorizer.training.trial import plan_with_budget

    plan = plan_with_budget(
        planned.plan,
        planned.cohort,
        planned.report,
        budget=seconds,
        device=device,
        progress=progress,
    )
    return replace(planned, plan=plan)
