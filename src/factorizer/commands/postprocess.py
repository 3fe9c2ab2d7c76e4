"""`factorizer postprocess`."""

from __future__ import annotations

from factorizer.bars import ConsoleProgress
from factorizer.commands import options
from factorizer.commands.console import add_cells, make_table, print_json, print_table, say_written
from factorizer.terminal import say


def postprocess(
    run: options.Run,
    data: options.Data,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Choose which lesions to drop after prediction, on the held-out cases of a cross-validation.

    `factorizer predict --postprocess` applies the rules.
    """
    from dataclasses import asdict

    from factorizer.studies.postprocessing import choose_postprocessing

    result = choose_postprocessing(run, data, device=device, progress=ConsoleProgress())
    say_written(result.file)
    if json:
        print_json([asdict(choice) for choice in result.choices])
        return
    table = make_table(("region", "what is kept", "Dice before", "Dice after", "cases"))
    for choice in result.choices:
        dices = (f"{choice.before:.4f}", f"{choice.after:.4f}")
        add_cells(table, [choice.region, choice.rule, *dices, choice.cases])
    print_table(table)
    say(
        "The scores after are optimistic: the rules were chosen on these cases. "
        "`factorizer predict --postprocess` applies them."
    )
