"""Hostile images: NIfTI files, gzip streams, pictures, and files that are no images."""

from __future__ import annotations

import gzip
import io
import os
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from attacks import Attack, Base, Outcome, damage_bytes
from PIL import Image

# fields of a NIfTI header: place, format
FIELDS = {
    "sizeof_hdr": (0, "i"),
    "dim0": (40, "h"),
    "dim1": (42, "h"),
    "dim2": (44, "h"),
    "dim3": (46, "h"),
    "dim4": (48, "h"),
    "dim5": (50, "h"),
    "datatype": (70, "h"),
    "bitpix": (72, "h"),
    "pixdim0": (76, "f"),
    "pixdim1": (80, "f"),
    "pixdim2": (84, "f"),
    "pixdim3": (88, "f"),
    "vox_offset": (108, "f"),
    "scl_slope": (112, "f"),
    "scl_inter": (116, "f"),
    "xyzt_units": (123, "B"),
    "qform_code": (252, "h"),
    "sform_code": (254, "h"),
    "quatern_b": (256, "f"),
    "srow_x0": (280, "f"),
    "srow_y1": (300, "f"),
    "srow_z2": (320, "f"),
    "srow_z3": (324, "f"),
}
NUMBERS = {
    "h": (0, -1, 1, 2, 7, 8, 32767, -32768, 128, 1024, 2304),
    "i": (0, -1, 348, 540, 2**31 - 1),
    "B": (0, 1, 2, 3, 7, 10, 255),
    "f": (0.0, -1.0, 1e-30, 1e-4, 1e30, float("nan"), float("inf"), 100.0, 348.0, 1e6),
}
Change = Callable[[bytearray], bytes]


def set_field(data: bytearray, field: str, value: float) -> None:
    place, kind = FIELDS[field]
    struct.pack_into(f"<{kind}", data, place, value)


def set_shape(data: bytearray, *shape: int) -> bytes:
    set_field(data, "dim0", len(shape))
    for axis, size in enumerate(shape, start=1):
        struct.pack_into("<h", data, 40 + 2 * axis, size)
    return bytes(data)


def with_units(code: int, factor: float) -> Change:
    """The same image with its voxels in other units."""

    def change(data: bytearray) -> bytes:
        set_field(data, "xyzt_units", code)
        for place in (*range(80, 92, 4), *range(268, 280, 4), *range(280, 328, 4)):
            (value,) = struct.unpack_from("<f", data, place)
            struct.pack_into("<f", data, place, value * factor)
        return bytes(data)

    return change


def with_voxels(value: float, count: int) -> Change:
    """Some voxels replaced; the base has float32 voxels after a header of 352 bytes."""

    def change(data: bytearray) -> bytes:
        values = np.frombuffer(data[352:], "<f4").copy()
        values[: count or None] = value
        return bytes(data[:352]) + values.tobytes()

    return change


def with_field(field: str, value: float) -> Change:
    def change(data: bytearray) -> bytes:
        set_field(data, field, value)
        return bytes(data)

    return change


def with_extension(size: int) -> Change:
    """A header extension that says to be so large."""

    def change(data: bytearray) -> bytes:
        head = bytes(data[:348]) + b"\x01\x00\x00\x00" + struct.pack("<ii", size, 6)
        return head + bytes(data[352:])

    return change


# what is done to a file, and whether it must be refused
KNOWN: dict[str, tuple[Change, Outcome]] = {
    "as it is": (bytes, "accepted"),
    "metres": (with_units(1, 1e-3), "accepted"),
    "micrometres": (with_units(3, 1e3), "accepted"),
    "tiny voxels": (with_units(2, 1e-6), "refused"),
    "giant voxels": (with_units(2, 1e4), "refused"),
    "empty": (lambda data: b"", "refused"),
    "only a header": (lambda data: bytes(data[:352]), "refused"),
    "cut": (lambda data: bytes(data[:-1000]), "refused"),
    "longer than it says": (lambda data: bytes(data) + bytes(100_000), "refused"),
    "offset 0": (with_field("vox_offset", 0.0), "refused"),
    "offset NaN": (with_field("vox_offset", float("nan")), "refused"),
    "offset beyond": (with_field("vox_offset", 1e9), "refused"),
    "a dimension of 0": (with_field("dim1", 0), "refused"),
    "a negative dimension": (with_field("dim2", -5), "refused"),
    "giant": (lambda data: set_shape(data, 2000, 2000, 2000), "refused"),
    "giant 4D": (lambda data: set_shape(data, 24, 24, 24, 32767), "refused"),
    "seven axes": (lambda data: set_shape(data, 2, 2, 2, 2, 2, 2, 2), "refused"),
    "flat": (lambda data: set_shape(data, 24, 24, 1), "refused"),
    "NaN voxels": (with_voxels(float("nan"), 5), "refused"),
    "infinite voxels": (with_voxels(float("inf"), 5), "refused"),
    "all zero": (with_voxels(0.0, 0), "refused"),
    "complex": (with_field("datatype", 32), "refused"),
    "colour": (with_field("datatype", 128), "refused"),
    "unknown type": (with_field("datatype", 77), "refused"),
    "no magic": (lambda data: bytes(data[:344]) + b"abcd" + bytes(data[348:]), "refused"),
    "slope infinite": (with_field("scl_slope", float("inf")), "unknown"),
    "extension of 2 GiB": (with_extension(2**31 - 16), "refused"),
    "extension of 0": (with_extension(0), "unknown"),
    "extension of -16": (with_extension(-16), "unknown"),
    "PNG": (lambda data: b"\x89PNG\r\n\x1a\n" + bytes(100), "refused"),
    "text": (lambda data: b"hello\n" * 1000, "refused"),
}


def copy_strokes(base: Base, folder: Path, count: int) -> tuple[Path, Path, str, list[str]]:
    """Some of the scans, linked: the folder, the first DWI, the name of its case, and the names of
    the others."""
    data = folder / "data"
    cases = sorted(
        path.name for path in (base.strokes / "rawdata").iterdir() if path.name.startswith("sub-")
    )[:count]
    for source in sorted(base.strokes.rglob("*.nii.gz")):
        place = source.relative_to(base.strokes)
        if any(case in str(place) for case in cases):
            (data / place).parent.mkdir(parents=True, exist_ok=True)
            os.link(source, data / place)
    (image,) = (data / "rawdata" / cases[0]).rglob("*_dwi.nii.gz")
    return data, image, cases[0], cases[1:]


def attack_with_image(
    name: str, content: bytes, right: Outcome, base: Base, folder: Path, command: str
) -> Attack:
    """Give a command a folder of scans with one image replaced. The other cases must continue."""
    data, image, bad, good = copy_strokes(base, folder, 2)
    image.unlink()
    image.write_bytes(content)
    names = [bad] if right == "refused" else []
    if command == "check":
        return Attack(
            f"NIfTI, {name}, data check", ["data", "check", str(data)], right, names=names
        )
    out = folder / "out"
    arguments = [
        "predict",
        "-i",
        str(data),
        "-o",
        str(out),
        "--model",
        str(base.run),
        "--device",
        "cpu",
    ]
    written = [out / f"{case}.nii.gz" for case in ([*good, bad] if right == "accepted" else good)]
    absent = [out / f"{bad}.nii.gz"] if right == "refused" else []
    return Attack(
        f"NIfTI, {name}, predict", arguments, right, names=names, written=written, absent=absent
    )


def plain_image(base: Base) -> bytearray:
    """An uncompressed scan with float32 voxels."""
    file = sorted(base.strokes.rglob("*_dwi.nii.gz"))[0]
    data = bytearray(gzip.decompress(file.read_bytes()))
    assert struct.unpack_from("<h", data, 70)[0] == 16, "the attacks expect float32"
    return data


def known_nifti(name: str, command: str) -> Callable[[random.Random, Base, Path], Attack]:
    change, right = KNOWN[name]

    def make(random_: random.Random, base: Base, folder: Path) -> Attack:
        content = gzip.compress(change(plain_image(base)), 1)
        return attack_with_image(name, content, right, base, folder, command)

    return make


def random_header(random_: random.Random, base: Base, folder: Path) -> Attack:
    """One to three fields of the header with impossible numbers."""
    data, changed = plain_image(base), []
    for _ in range(random_.choice([1, 1, 2, 3])):
        field = random_.choice(sorted(FIELDS))
        value = random_.choice(NUMBERS[FIELDS[field][1]])
        set_field(data, field, value)
        changed.append(f"{field}={value}")
    command = random_.choice(["check", "check", "predict"])
    return attack_with_image(
        " ".join(changed), gzip.compress(bytes(data), 1), "unknown", base, folder, command
    )


def damaged_nifti(random_: random.Random, base: Base, folder: Path) -> Attack:
    """Bytes damaged before compression, where only the header tells."""
    content = gzip.compress(damage_bytes(bytes(plain_image(base)), random_), 1)
    return attack_with_image(
        "damaged bytes", content, "unknown", base, folder, random_.choice(["check", "predict"])
    )


def damaged_gzip(random_: random.Random, base: Base, folder: Path) -> Attack:
    """Bytes damaged after compression: the checksum tells, except in what gzip ignores (its own
    header)."""
    content = gzip.compress(bytes(plain_image(base)), 1)
    damaged = content[:16] + damage_bytes(content[16:], random_)
    right: Outcome = "refused" if damaged != content else "accepted"
    if damaged.startswith(content):
        right = "unknown"  # more bytes behind the stream
    return attack_with_image(
        "damaged gzip", damaged, right, base, folder, random_.choice(["check", "predict"])
    )


def gzip_bomb(random_: random.Random, base: Base, folder: Path) -> Attack:
    """Few bytes that become gigabytes, behind a small header or one that asks for them."""
    head = plain_image(base)[:352]
    if random_.random() < 0.5:
        set_shape(head, 1200, 1200, 1200)
    stream = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = [stream.compress(bytes(head))]
    zeros = bytes(2**20)
    parts += [stream.compress(zeros) for _ in range(3000)]
    content = b"".join([*parts, stream.flush()])
    return attack_with_image(
        "gzip bomb", content, "refused", base, folder, random_.choice(["check", "predict"])
    )


def odd_file(random_: random.Random, base: Base, folder: Path) -> Attack:
    """A pipe, a device, a folder or a link instead of an image."""
    data, image, bad, _ = copy_strokes(base, folder, 2)
    image.unlink()
    kind = random_.choice(["pipe", "device", "folder", "dangling link", "link to itself"])
    if kind == "pipe":
        os.mkfifo(image)
    elif kind == "device":
        image.symlink_to("/dev/zero")
    elif kind == "folder":
        image.mkdir()
    else:
        image.symlink_to(image if kind == "link to itself" else "nowhere")
    return Attack(f"a {kind} for an image", ["data", "check", str(data)], "refused", names=[bad])


def endless_links(random_: random.Random, base: Base, folder: Path) -> Attack:
    """Links that lead back up: a walk that follows them never ends."""
    data, image, _, _ = copy_strokes(base, folder, 2)
    for name in ("a", "b", "c")[: random_.choice([1, 2, 3])]:
        (image.parent / name).symlink_to(".")
    (image.parent.parent / "up").symlink_to("..")
    return Attack("links to their own folder", ["data", "check", str(data)], "accepted")


def lying_channel(random_: random.Random, base: Base, folder: Path) -> Attack:
    """The second channel says to be larger than memory."""
    data, image, bad, _ = copy_strokes(base, folder, 2)
    second = image.with_name(image.name.replace("_dwi", "_adc"))
    second.unlink()
    second.write_bytes(gzip.compress(set_shape(plain_image(base), 2000, 2000, 1500), 1))
    command = random_.choice(["check", "predict"])
    if command == "check":
        return Attack("second channel larger", ["data", "check", str(data)], "refused", names=[bad])
    arguments = [
        "predict",
        "-i",
        str(data),
        "-o",
        str(folder / "out"),
        "--model",
        str(base.run),
        "--device",
        "cpu",
    ]
    return Attack("second channel larger, predict", arguments, "refused", names=[bad])


def hostile_label(random_: random.Random, base: Base, folder: Path) -> Attack:
    """A damaged label map, for `data check` and `evaluate`."""
    data, _, bad, _ = copy_strokes(base, folder, 2)
    (label,) = (data / "derivatives" / bad).rglob("*_msk.nii.gz")
    content = bytearray(gzip.decompress(label.read_bytes()))
    label.unlink()
    field = random_.choice(sorted(FIELDS))
    set_field(content, field, random_.choice(NUMBERS[FIELDS[field][1]]))
    label.write_bytes(gzip.compress(bytes(content), 1))
    if random_.random() < 0.5:
        return Attack(f"label with {field}", ["data", "check", str(data)])
    predictions = folder / "predictions"
    predictions.mkdir()
    for file in sorted(base.strokes.rglob("*_msk.nii.gz"))[:2]:
        os.link(file, predictions / f"{file.name.split('_')[0]}.nii.gz")
    arguments = ["evaluate", "-p", str(predictions), "-r", str(data), "--preset", "isles22-small"]
    return Attack(f"label with {field}, evaluate", [*arguments, "-o", str(folder / "scores.csv")])


def png_bytes(shape: tuple[int, ...] = (20, 30, 3)) -> bytes:
    buffer = io.BytesIO()
    picture = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    Image.fromarray(picture).save(buffer, format="png")
    return buffer.getvalue()


def png_of_size(width: int, height: int) -> bytes:
    """A PNG whose header says so, with nothing behind it."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    return (
        b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    )


PICTURES: dict[str, tuple[Callable[[random.Random], bytes], Outcome]] = {
    "PostScript": (
        lambda r: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 30 20\nshowpage\n",
        "refused",
    ),
    "GIF": (lambda r: b"GIF89a\x1e\x00\x14\x00\x80\x00\x00" + bytes(20), "refused"),
    "text": (lambda r: b"not a picture", "refused"),
    "empty": (lambda r: b"", "refused"),
    "cut": (lambda r: png_bytes()[:200], "refused"),
    "bomb": (lambda r: png_of_size(60_000, 60_000), "refused"),
    "large": (lambda r: png_of_size(12_000, 12_000), "refused"),
    "no pixels": (lambda r: png_of_size(0, 0), "refused"),
    "damaged": (lambda r: damage_bytes(png_bytes(), r), "unknown"),
    "damaged head": (lambda r: damage_bytes(png_bytes()[:60], r) + png_bytes()[60:], "unknown"),
}


def hostile_picture(name: str) -> Callable[[random.Random, Base, Path], Attack]:
    make_content, right = PICTURES[name]

    def make(random_: random.Random, base: Base, folder: Path) -> Attack:
        data = folder / "data"
        data.mkdir()
        for file in sorted(base.photographs.iterdir()):
            os.link(file, data / file.name)
        victim = data / random_.choice(["Image_01L.png", "Image_01L_1stHO.png"])
        victim.unlink()
        if name == "pipe":
            os.mkfifo(victim)
        else:
            victim.write_bytes(make_content(random_))
        names = ["Image_01L"] if right == "refused" else []
        return Attack(f"picture, {name}", ["data", "check", str(data)], right, names=names)

    return make


PICTURES["pipe"] = (lambda r: b"", "refused")
