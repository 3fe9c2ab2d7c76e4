"""Turn a trained fold into a model of the zoo: half-precision weights, scores of the held-out cases, and
a card.

    python benchmarks/ship.py runs/hippocampus/fold0 hippocampus --data Task04_Hippocampus

The scores are computed again with the half-precision weights. The card says by how much Dice
changed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import mkdtemp
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from factorizer.data.cache import preparation_for
from factorizer.data.layouts import read_cohort
from factorizer.evaluation.scores import Score, mean_scores
from factorizer.files import write_atomically
from factorizer.inference.load import load
from factorizer.inference.predictor import Predictor
from factorizer.runs.find import trained_on
from factorizer.runs.fold import Fold
from factorizer.runs.weights import read_weights
from factorizer.runs.zoo import region_dice, write_model
from factorizer.training.scoring import score_case

ZOO = Path(__file__).parents[1] / "src" / "factorizer" / "zoo"
console = Console()


@dataclass(frozen=True)
class About:
    """The parts of a card that no file of a run has."""

    title: str
    data: str
    licence: str
    input: str
    limits: str


ABOUT = {
    "hippocampus": About(
        title="Anterior and posterior hippocampus on T1-weighted MRI",
        data="Task 4 of the Medical Segmentation Decathlon (A. L. Simpson et al., "
        "arXiv:1902.09063, 2019; M. Antonelli et al., Nature Communications 13:4128, 2022): crops "
        "of about 35 x 50 x 36 mm around one hippocampus, from adults with and without a "
        "psychotic disorder, scanned at Vanderbilt University Medical Center; 200 of its 260 "
        "labelled crops. Both sides of a scan are in the same fold, and count as two cases.",
        licence="The data are CC BY-SA 4.0. These weights were derived from them and are shared "
        "under CC BY-SA 4.0 with attribution to the authors above: "
        "https://creativecommons.org/licenses/by-sa/4.0/",
        input="One T1-weighted crop around a hippocampus, with voxels of about 1 mm. "
        "Intensities may have any scale.",
        limits="It expects a crop, not a whole head, where it was never tested. One scanner "
        "site, adults; other ages, field strengths, atrophy, resections and lesions were not "
        "tested either.",
    ),
    "isles22-stroke": About(
        title="Ischaemic stroke lesions on DWI and ADC",
        data="The ISLES 2022 training set (M. R. Hernandez Petzsche et al., Scientific Data "
        "9:762, 2022): acute and sub-acute ischaemic stroke from several centres and vendors, "
        "with lesion masks by experts; 120 of its 250 public cases, in folds that the method's "
        "authors published.",
        licence="The data are CC BY 4.0. These weights were derived from them, carry "
        "attribution to the authors above, and are shared under CC BY 4.0.",
        input="DWI (b = 1000) and ADC on one grid, of the brain alone (what is around it is 0, "
        "as in ISLES), with voxels of any size (they are resampled to 2 mm).",
        limits="Haemorrhage, tumours, and scanners other than those of the data set were not "
        "tested.",
    ),
}


def main(
    run: Annotated[Path, typer.Argument(help="A fold that is finished.")],
    name: Annotated[str, typer.Argument(help=", ".join(ABOUT))],
    data: Annotated[Path, typer.Option(help="The data set that it was trained on.")],
) -> None:
    about = ABOUT[name]
    folder = Path(mkdtemp()) / name  # the zoo stays as it is until everything is written
    source, model = Fold(run), Fold(folder)
    write_model(source, read_weights(source), folder)
    predictor = load(folder, device="cpu")
    before = source.scores()
    after = score_again(predictor, before, data)
    model.write_scores(after)
    change = largest_change(before, after)
    count = sum(weight.numel() for weight in predictor.networks[0].parameters())
    card = write_card(about, name, source, model, change, count)
    write_atomically(model.card_file, card)
    model.write_trained_on(trained_on([source]))
    title = f"{model.weights_file.name}: {about.title} (zoo:{name})"
    write_atomically(model.licence_file, f"{title}\n\n{about.data}\n\n{about.licence}\n")
    shutil.rmtree(ZOO / name, ignore_errors=True)
    shutil.move(folder, ZOO / name)
    console.print(card)


def score_again(predictor: Predictor, before: Sequence[Score], data: Path) -> list[Score]:
    """The scores of the same cases with another model."""
    cohort = read_cohort(data)
    preparation = preparation_for(cohort, predictor.preset.data)
    names = list(dict.fromkeys(row.case for row in before))
    rows: list[Score] = []
    for name in track(names, "scoring"):
        rows += score_case(predictor, cohort.case(name), preparation)
    return rows


def largest_change(before: Sequence[Score], after: Sequence[Score]) -> float:
    """The largest change of a case's Dice."""
    pairs = zip(before, after, strict=True)
    return max(abs(new.value - old.value) for old, new in pairs if new.metric == "dice")


def write_card(
    about: About, name: str, source: Fold, model_files: Fold, change: float, count: int
) -> str:
    """The card of a model in Markdown."""
    preset, starts = source.preset, source.starts()
    training, model = preset.training, preset.model
    hours = sum(start.get("seconds", {}).get("training", 0) for start in starts) / 3600
    whole = all("seconds" in start for start in starts)
    parts = "" if whole else " and parts that were interrupted"
    optimizer = {"adamw": "AdamW", "muon": "Muon"}[training.optimizer]
    held_out = len({row.case for row in model_files.scores()})
    used = len(source.cases()) - held_out
    labels = ", ".join(f"{label} = {value}" for label, value in preset.data.labels.items())
    return f"""# {about.title} (`zoo:{name}`)

**For research. Not a medical device, not for clinical use.**

- **Model**: {model.name}, widths {"-".join(map(str, model.widths))}, window {model.window}, heads of {model.head_dim}
  channels, rank {model.rank}, {model.num_iters} iterations, {count:,} parameters, stored in half precision.
- **Input**: {about.input} Channels: {", ".join(preset.data.channels)}.
- **Output**: {labels}.
- **Use**: `factorizer predict --model zoo:{name} -i CASE -o OUT`, then, if you have references,
  `factorizer evaluate -p OUT -r REFERENCES --preset zoo:{name} -o scores.csv`.

## Training

{about.data}

{used} cases to train on, {held_out} held out. {training.max_steps:,} steps of batch {training.batch_size} with
{optimizer} at {training.learning_rate:g}, cosine schedule, seed {training.seed}; {hours:.1f} hours on a CPU{parts}. The
preset is in config.yaml beside this card.

## Scores on the held-out cases

They are those of scores.csv beside this card.

| region | cases | Dice [95 %] | HD95, mm (undefined) | lesion F1 |
|---|---|---|---|---|
{write_rows(model_files)}

Means over cases with bootstrap intervals; an empty prediction of an empty reference has Dice 1, a missed or invented
region Dice 0. HD95 is the mean of the cases where it is defined. Half precision changed no case's Dice by more than
{change:.4f}. {" ".join(describe_sizes(model_files))}

## Intended use and limits

Research on segmentation methods, teaching, a starting point for training (`factorizer train --init zoo:{name}`; what
comes of that may be derived from these weights in the sense of their licence).
{about.limits} The scores above are from data of the same source as the training data; expect lower scores on other data.

## Licence

{about.licence}
"""


def write_rows(model: Fold) -> str:
    """The rows of the table of scores."""
    means = mean_scores(model.scores())
    rows = []
    for dice in region_dice(model):
        mean = means[dice.region]
        rows.append(
            f"| {dice.region} | {dice.cases} | {dice.mean:.3f} [{dice.low:.3f}, {dice.high:.3f}] | "
            f"{mean.hd95_mm:.2f} ({mean.undefined}) | {mean.lesion_f1:.3f} |"
        )
    return "\n".join(rows)


def describe_sizes(model: Fold) -> Iterator[str]:
    """How much better large regions are found than small ones."""
    rows = model.scores()
    value = {(row.region, row.metric, row.case): row.value for row in rows}
    for region in dict.fromkeys(row.region for row in rows):
        cases = {row.case for row in rows if row.region == region}
        sizes = {case: value[region, "reference_volume_ml", case] for case in cases}
        present = sorted((case for case in cases if sizes[case] > 0), key=sizes.__getitem__)
        middle = len(present) // 2
        small = fmean(value[region, "dice", case] for case in present[:middle])
        large = fmean(value[region, "dice", case] for case in present[middle:])
        yield (
            f"Where there is less than {sizes[present[middle]]:.3g} ml of {region}, which is half "
            f"of the cases that have any, its mean Dice is {small:.3f}, and {large:.3f} in the "
            "other half."
        )


if __name__ == "__main__":
    typer.run(main)
