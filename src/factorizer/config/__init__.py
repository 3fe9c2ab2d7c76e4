"""What a preset can say: typed sections that cannot be changed. Imports neither torch nor NumPy.

| module | what it holds |
|---|---|
| fields | kinds of values with their limits |
| augmentation | the section `data.augmentation` |
| model | the section `model` |
| preset | the other sections, and the preset itself |
| networks | the network that a preset describes; it is not imported here, as it needs torch |
"""

from factorizer.config.augmentation import (
    MAX_DISPLACEMENT,
    Affine,
    Augmentation,
    Elastic,
    Flip,
)
from factorizer.config.fields import Range, Section
from factorizer.config.model import Model, model_options
from factorizer.config.preset import Data, Inference, Preset, Training, build_options

__all__ = [
    "MAX_DISPLACEMENT",
    "Affine",
    "Augmentation",
    "Data",
    "Elastic",
    "Flip",
    "Inference",
    "Model",
    "Preset",
    "Range",
    "Section",
    "Training",
    "build_options",
    "model_options",
]
