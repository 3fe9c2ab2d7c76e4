"""Layouts of data sets on disk. `read_cohort` recognizes a layout and returns a `Cohort`.

Each layout has a file here. To add one, add a file with a function that takes a folder and returns
its cohort, or None if the folder has another layout. Then add a row to the table in `read.py`.
A reader looks at names and at dataset.json. It opens an image only to count its channels. If one
case is wrong, it adds a `Problem` to the cohort and keeps the other cases.
"""

from factorizer.data.layouts.read import UnknownLayout, describe_layouts, read_cohort
from factorizer.data.naming import IMAGES_2D, NIFTI

__all__ = ["IMAGES_2D", "NIFTI", "UnknownLayout", "describe_layouts", "read_cohort"]
