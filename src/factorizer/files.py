"""Writing files, so that a crash leaves the old one or the new one, never half of either; tables as CSV."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write beside the file, then put it in its place."""
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)  # as an ordinary new file; mkstemp's is private
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a line of names above."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    return text.getvalue()
