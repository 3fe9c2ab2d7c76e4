"""The augmentation section of a preset: which random changes training patches get (App. A)."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from factorizer.config.fields import (
    Axes,
    DegreesRange,
    DisplacementRange,
    Distance,
    FactorRange,
    IntensityRange,
    Probability,
    ScaleRange,
    Section,
    SigmaRange,
    SomeAxes,
    VarianceRange,
    ZoomRange,
    optional,
    section,
)

# as a share of the distance between control points; below 1 / 2.48 cubic B-splines cannot fold in
# 3D (Choi and Lee 2000)
MAX_DISPLACEMENT = 0.4


class Affine(Section):
    probability: Probability = optional(0.15, "probability that a patch is rotated and scaled")
    rotation_degrees: DegreesRange = optional((-30.0, 30.0), "range of the angle about each axis")
    axes: Axes = optional(
        None, "axes to rotate about, numbered as in flip.axes; null means all; only for 3D"
    )
    scale: ScaleRange = optional((0.7, 1.3), "range of the scale factor, the same for all axes")


class Elastic(Section):
    probability: Probability = optional(
        0.0, "probability that a patch is deformed; the paper does not use it"
    )
    control_spacing_voxels: Distance = optional(
        10.0,
        "distance between control points in voxels of the finest axis, or in voxels of each axis "
        "if spacing_mm is null",
    )
    displacement_voxels: DisplacementRange = optional(
        (0.0, 4.0),
        "range of a patch's largest displacement of control points along an axis, in the voxels of "
        "control_spacing_voxels",
    )
    axes: SomeAxes = optional(
        None, "axes along which control points move, numbered as in flip.axes; null means all"
    )

    @model_validator(mode="after")
    def check_displacement(self) -> Self:
        limit = MAX_DISPLACEMENT * self.control_spacing_voxels
        if self.displacement_voxels[1] > limit * (1 + 1e-9):
            raise ValueError(
                f"control points {self.control_spacing_voxels:g} voxels apart may move by "
                f"{limit:g} before tissue folds; displacement_voxels goes up to "
                f"{self.displacement_voxels[1]:g}; lower it, or increase control_spacing_voxels"
            )
        return self


class Flip(Section):
    probability: Probability = optional(
        0.5, "probability that an axis is mirrored, drawn for each axis"
    )
    axes: Axes = optional(
        None,
        "axes to mirror: in 3D 0 is left-right, 1 is back-front, 2 is feet-head; in 2D 0 is "
        "up-down, 1 is left-right; null means all",
    )


class GaussianNoise(Section):
    probability: Probability = optional(0.15, "probability that noise is added to a patch")
    variance: VarianceRange = optional(
        (0.0, 0.1), "range of the variance of the noise, the square of its standard deviation"
    )


class GaussianSmoothing(Section):
    probability: Probability = optional(
        0.15, "probability that a channel is blurred, drawn for each channel"
    )
    sigma_voxels: SigmaRange = optional(
        (0.5, 1.5), "range of the standard deviation of the Gaussian"
    )


class ScaleIntensity(Section):
    probability: Probability = optional(0.15, "probability that intensities are multiplied")
    factor: FactorRange = optional((0.7, 1.3), "range of the factor")


class ShiftIntensity(Section):
    probability: Probability = optional(0.15, "probability that intensities are shifted")
    offset: IntensityRange = optional((-0.1, 0.1), "range of the offset")


class AdjustContrast(Section):
    probability: Probability = optional(0.15, "probability that the contrast is changed")
    gamma: FactorRange = optional(
        (0.7, 1.5), "range of the exponent, applied to intensities mapped to 0..1"
    )


class LowResolution(Section):
    probability: Probability = optional(
        0.0,
        "probability that a channel loses resolution, drawn for each channel; the paper does not "
        "use it",
    )
    scale: ZoomRange = optional(
        (0.5, 1.0), "range of the factor by which the channel is made smaller, then larger again"
    )


class InvertedContrast(Section):
    probability: Probability = optional(
        0.0,
        "probability that the contrast is changed from the bright end; the paper does not use it",
    )
    gamma: FactorRange = optional(
        (0.7, 1.5), "range of the exponent, applied to inverted intensities mapped to 0..1"
    )


class ChannelDropout(Section):
    probability: Probability = optional(
        0.0,
        "probability that one channel becomes zero; above 0, `predict` takes cases without it; "
        "needs several channels",
    )


class Augmentation(Section):
    affine: Affine = section(Affine, "rotation and scaling")
    elastic: Elastic = section(
        Elastic, "smooth deformation by cubic B-splines between displaced control points"
    )
    flip: Flip = section(Flip, "mirroring")
    gaussian_noise: GaussianNoise = section(GaussianNoise, "additive noise")
    gaussian_smoothing: GaussianSmoothing = section(GaussianSmoothing, "blurring")
    scale_intensity: ScaleIntensity = section(
        ScaleIntensity, "multiplication of intensities by a factor"
    )
    shift_intensity: ShiftIntensity = section(
        ShiftIntensity, "addition of an offset to intensities"
    )
    adjust_contrast: AdjustContrast = section(AdjustContrast, "gamma correction")
    low_resolution: LowResolution = section(LowResolution, "loss of resolution")
    inverted_contrast: InvertedContrast = section(
        InvertedContrast, "gamma correction of inverted intensities"
    )
    channel_dropout: ChannelDropout = section(ChannelDropout, "loss of a whole channel")
