"""Attack every reader of Factorizer with hostile inputs: `make fuzz MINUTES=10`, and in small a
part of `make test`.

    python tests/fuzz/fuzz.py --seed 0 --rounds 1      # the fixed list once, and random inputs from
    a seed python tests/fuzz/fuzz.py --minutes 10             # the same with new seeds until the
    time is over

A failing input is kept with what it printed. Its name has the seed that makes it again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import hostile_cohorts as cohorts
import hostile_images as images
import hostile_models as models
import hostile_texts as texts
import hostile_values as values
from arena import Result, import_everything, run_command
from attacks import Attack, Base, Maker, judge

TRAINING = [
    "training.max_steps=2",
    "training.checkpoint_every=1",
    "training.validate_every=2",
    "training.folds=3",
    "model.widths=[8,16]",
    "model.window=4",
    "data.patch_size=[16,16,16]",
]
# of random inputs, in a round
RANDOM: list[tuple[Maker, int]] = [
    (images.random_header, 45),
    (images.damaged_nifti, 20),
    (images.damaged_gzip, 20),
    (images.gzip_bomb, 2),
    (images.odd_file, 8),
    (images.endless_links, 3),
    (images.lying_channel, 4),
    (images.hostile_label, 20),
    (texts.mutated_preset, 40),
    (texts.damaged_preset, 20),
    (texts.mutated_description, 30),
    (texts.mutated_list, 20),
    (texts.good_list, 4),
    (texts.damaged_scores, 10),
    (texts.hostile_split, 20),
    (models.hostile_run_file, 45),
    (values.hostile_case_name, 8),
    (cohorts.channel_folder, 4),
    (cohorts.hostile_prediction, 10),
    (cohorts.labelled_list, 12),
    (cohorts.loose_folders, 10),
    (cohorts.damaged_record, 8),
]


def fixed_makers() -> list[Maker]:
    """Every input with a known right answer, once."""
    makers: list[Maker] = []
    for name in images.KNOWN:
        makers += [images.known_nifti(name, "check"), images.known_nifti(name, "predict")]
    makers += [images.hostile_picture(name) for name in images.PICTURES]
    makers += [texts.known_preset(name) for name in (*texts.YAMLS, *texts.CONTENTS)]
    makers += [texts.known_description(name) for name in texts.CONTENTS]
    makers.append(texts.marked_description)
    makers += [
        texts.known_list(name, ending) for name in texts.CONTENTS for ending in (".csv", ".json")
    ]
    makers += [texts.hostile_scores(name) for name in texts.SCORES]
    makers += [models.hostile_safetensors(kind) for kind in models.SAFETENSORS]
    makers += [models.hostile_checkpoint(kind) for kind in models.CHECKPOINTS for _ in range(2)]
    makers += [cohorts.train_with_unusable(name) for name in cohorts.UNUSABLE]
    makers += [cohorts.train_with_voxels(size) for size in (30.0, 1000.0)]
    makers += [cohorts.plain_files(name) for name in images.KNOWN]
    makers += [cohorts.continued(kind) for kind in cohorts.CONTINUED]
    makers += [cohorts.colliding_names, cohorts.swapped_folds]
    makers += [values.hostile_field(change) for change in values.FIELDS]
    makers += [values.hostile_option(list(arguments)) for arguments in values.OPTIONS]
    makers += [values.hostile_environment(index) for index in range(len(values.ENVIRONMENTS))]
    makers += [values.hostile_name(name) for name in values.NAMES]
    return makers


@dataclass(frozen=True)
class Failure:
    """An attack that was not handled correctly."""

    attack: str
    seed: str
    complaint: str
    command: list[str]
    output: str


@dataclass
class Tally:
    """The results of some rounds."""

    attacks: int
    failures: list[Failure]
    slowest_seconds: float = 0.0
    highest_gib: float = 0.0

    def add(self, result: Result) -> None:
        self.attacks += 1
        self.slowest_seconds = max(self.slowest_seconds, result.seconds)
        self.highest_gib = max(self.highest_gib, result.peak_bytes / 2**30)


def make_base(folder: Path) -> Base:
    """Good data and a good run, made by the commands themselves."""
    strokes, run = folder / "strokes", folder / "run"
    must_run(
        ["data", "synth", "isles22", "-o", str(strokes), "--cases", "6", "--size", "24"], folder
    )
    changes = [part for change in TRAINING for part in ("--set", change)]
    common = [
        "--data",
        str(strokes),
        "--output",
        str(run),
        "--fold",
        "1",
        "--device",
        "cpu",
        "--workers",
        "0",
    ]
    must_run(["train", "--preset", "isles22", *common, *changes], folder)
    predictions = folder / "predictions"
    must_run(
        [
            "predict",
            "-i",
            str(strokes),
            "-o",
            str(predictions),
            "--model",
            str(run),
            "--device",
            "cpu",
        ],
        folder,
    )
    photographs = folder / "photographs"
    photographs.mkdir()
    for name in ("Image_01L", "Image_01R", "Image_02L"):
        (photographs / f"{name}.png").write_bytes(images.png_bytes())
        (photographs / f"{name}_1stHO.png").write_bytes(images.png_bytes((20, 30)))
    return Base(strokes, photographs, run / "fold1", predictions)


def must_run(arguments: Sequence[str], folder: Path) -> None:
    result = run_command(arguments, folder=folder)
    if result.code:
        raise SystemExit(f"factorizer {' '.join(arguments)} failed:\n{result.output}")


def plan_round(seed: int, *, with_fixed: bool) -> Iterator[tuple[Maker, str]]:
    """The attacks of a round, each with the text that seeds it."""
    if with_fixed:
        for index, maker in enumerate(fixed_makers()):
            yield maker, f"{seed}-fixed-{index}"
    for maker, count in RANDOM:
        for index in range(count):
            yield maker, f"{seed}-{maker.__name__}-{index}"


def try_attack(
    maker: Maker, seed: str, base: Base, folder: Path, tally: Tally, kept: Path | None
) -> None:
    """Make an input, run its command, and note what is wrong with how it was taken."""
    folder.mkdir()
    attack = maker(random.Random(seed), base, folder)
    result = run_command(attack.arguments, folder=folder, environment=attack.environment)
    if (
        result.timed_out
    ):  # a busy machine may stand still for seconds; what hangs by itself hangs again
        remove(folder)
        folder.mkdir()
        attack = maker(random.Random(seed), base, folder)
        result = run_command(attack.arguments, folder=folder, environment=attack.environment)
    tally.add(result)
    complaint = judge(attack, result)
    if complaint:
        tally.failures.append(describe(attack, seed, complaint, result))
        if kept is not None:
            shutil.copytree(
                folder,
                kept / seed,
                symlinks=True,
                ignore_dangling_symlinks=True,
                dirs_exist_ok=True,
            )
    remove(folder)


def describe(attack: Attack, seed: str, complaint: str, result: Result) -> Failure:
    return Failure(attack.name, seed, complaint, list(attack.arguments), result.output[-3000:])


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def work_and_exit(
    share: int, options: argparse.Namespace, base: Base, scratch: Path, report: Path
) -> None:
    """A forked process: it must not clean up what is its parent's."""
    try:
        work(share, options.jobs, options, base, scratch, report)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def work(
    share: int, jobs: int, options: argparse.Namespace, base: Base, scratch: Path, report: Path
) -> None:
    """One of several processes: every so many-th attack of every round, then its tally into a
    file."""
    tally = Tally(0, [])
    deadline = time.monotonic() + 60 * options.minutes if options.minutes else None
    rounds = 0
    while rounds < options.rounds or (deadline is not None and time.monotonic() < deadline):
        seed = options.seed + rounds
        for number, (maker, text) in enumerate(plan_round(seed, with_fixed=rounds == 0)):
            if options.only and options.only not in text:
                continue
            if deadline is not None and time.monotonic() > deadline:
                break
            if number % jobs == share:
                try_attack(maker, text, base, scratch / f"{share}", tally, options.keep)
        rounds += 1
    report.write_text(json.dumps(asdict(tally)))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="seed of the first round; each later one is one higher",
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="continue with new seeds for this many minutes"
    )
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--only", default="", help="only attacks with this text in their seed, to repeat one"
    )
    parser.add_argument("--keep", type=Path, help="a folder for failing inputs")
    parser.add_argument("--json", type=Path, help="a file for the tally")
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    import_everything()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as text:
        scratch = Path(text)
        base = make_base(scratch)
        reports = [scratch / f"report{share}.json" for share in range(options.jobs)]
        children = []
        for share in range(options.jobs):
            child = os.fork()
            if child == 0:
                work_and_exit(share, options, base, scratch, reports[share])
            children.append(child)
        codes = [os.waitpid(child, 0)[1] for child in children]
        if any(codes):
            raise SystemExit("the fuzzing itself failed")
        parts = [json.loads(report.read_text()) for report in reports]
    show(parts, time.monotonic() - started, options.json)


def show(parts: list[dict], seconds: float, file: Path | None) -> None:
    failures = [failure for part in parts for failure in part["failures"]]
    tally = {
        "attacks": sum(part["attacks"] for part in parts),
        "failures": failures,
        "slowest_seconds": max(part["slowest_seconds"] for part in parts),
        "highest_gib": max(part["highest_gib"] for part in parts),
        "seconds": seconds,
    }
    if file is not None:
        file.write_text(json.dumps(tally, indent=1))
    for failure in failures:
        print(f"\n{failure['attack']}: {failure['complaint']}  (--only {failure['seed']})")
        print(f"  factorizer {' '.join(failure['command'])}".encode("unicode_escape").decode())
        print(
            "  "
            + failure["output"]
            .strip()[-600:]
            .encode("unicode_escape")
            .decode()
            .replace("\\n", "\n  ")
        )
    print(
        f"{tally['attacks']} attacks in {seconds:.0f} s: {len(failures)} taken wrongly; the "
        f"slowest took {tally['slowest_seconds']:.1f} s, the largest {tally['highest_gib']:.2f} GiB"
    )
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
