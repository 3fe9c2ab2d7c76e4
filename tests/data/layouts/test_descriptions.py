"""A malformed dataset.json is one error, which names the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from factorizer.data.cases import DataError
from factorizer.data.layouts import read_cohort


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "it is not JSON"),
        ("[]", "it holds no description"),
        (
            '{"modality": "MRI", "labels": {"1": "a"}, "training": []}',
            'modality is "MRI"; it should be names',
        ),
        (
            '{"modality": {"0": "MRI"}, "labels": ["a"], "training": []}',
            "labels is .*; it should be names with values",
        ),
        ('{"modality": {"0": "MRI"}, "training": []}', "labels is missing"),
        (
            '{"modality": {"0": "MRI"}, "labels": {"1": "a"}, "training": [{}]}',
            "image of an entry .* is missing",
        ),
        ('{"channel_names": {"0": "CT"}, "labels": {"background": 0}}', "its labels are none"),
        (
            '{"channel_names": {"0": "CT"}, "labels": {"a": 1e400}}',
            "label a is Infinity; it should be a whole number",
        ),
        (
            '{"channel_names": {"0": ["CT"]}, "labels": {"a": 1}}',
            "it should be text in quotation marks",
        ),
        (
            '{"channel_names": {"0": "CT"}, "labels": {"a": 1}, "file_ending": 5}',
            "file_ending is 5; it should be text",
        ),
        (
            '{"modality": {"0": "MRI"}, "labels": {"1": "a"}, "training": [{"image": 5}]}',
            "training is 5; it should be text",
        ),
        (
            json.dumps(
                {"modality": {str(i): "x" for i in range(99)}, "labels": {}, "training": []}
            ),
            "at most 64",
        ),
        ("[" * 200_000, "nested too deep"),
        (
            '{"channel_names": {"0": "CT"}, "labels": {"a": 300}}',
            "its labels are a = 300; give labels with values from",
        ),
    ],
)
def test_a_malformed_description_is_one_error(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "dataset.json").write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        read_cohort(tmp_path)
    assert str(tmp_path / "dataset.json") in str(caught.value)
