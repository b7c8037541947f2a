"""Damage to bytes, every kind of it reproducible from a name and a number."""

import io
import re
import zipfile

HUGE = (b"9" * 25, b"1" + b"0" * 400, b"-1", b"1e400", b"18446744073709551615")


def _flipped(content, draw):
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 8))):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _set(content, draw):
    changed = bytearray(content)
    changed[draw.randrange(len(changed))] = draw.choice(b'\x00\xff\x80\n"[]{}.,=0\\')
    return bytes(changed)


def _cut(content, draw):
    return content[: draw.randrange(len(content))]


def _part(content, draw):
    start = draw.randrange(len(content))
    return start, min(len(content), start + draw.choice((1, 4, 16, 64, 1024)))


def _removed(content, draw):
    start, stop = _part(content, draw)
    return content[:start] + content[stop:]


def _spliced(content, draw):
    start, stop = _part(content, draw)
    place = draw.randrange(len(content))
    return content[:place] + content[start:stop] * draw.choice((1, 1, 2, 500)) + content[place:]


def _overwritten(content, draw):
    start, stop = _part(content, draw)
    return content[:start] + draw.randbytes(stop - start) + content[stop:]


def _huge(content, draw):
    numbers = list(re.finditer(rb"[0-9]+", content))
    if not numbers:
        return _set(content, draw)
    found = draw.choice(numbers)
    return content[: found.start()] + draw.choice(HUGE) + content[found.end() :]


def _nested(content, draw):
    place = draw.randrange(len(content))
    return content[:place] + draw.choice((b"[", b"{", b'{"a":', b"a.")) * 30_000 + content[place:]


RAW = (_flipped, _set, _cut, _removed, _spliced, _overwritten)
"""Accidents: what a checksum is there to notice."""

TEXT = (*RAW, _huge, _nested)


def repacked(content, draw):
    """Return an archive that is whole, with a member changed, renamed, swapped, doubled or gone."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    one, other = draw.choice(list(members)), draw.choice(list(members))
    how = draw.randrange(6)
    if how == 0:
        members[one], members[other] = members[other], members[one]
    elif how == 1:
        del members[one]
    elif how == 2:
        members[draw.choice(("x.npy", "worlds.npy", "features.npy"))] = members[one]
    else:
        members[one] = draw.choice((*RAW, _huge, _header))(members[one], draw)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in members.items():
            archive.writestr(name, part)
    return packed.getvalue()


def _header(content, draw):
    """Change the type or the shape that an array's header says, in as many characters."""
    start, stop = 10, min(len(content), 128)
    for old, new in draw.sample(
        [(b"(8,", b"(9,"), (b"<f8", b"<i8"), (b"<f8", b"|O8"), (b"|b1", b"|u1"), (b"(", b"["),
         (b"8, 2", b"16,1"), (b"False", b"True "), (b"shape", b"shope"), (b"<f4", b"<U1")],
        4,
    ):  # fmt: skip
        if old in content[start:stop]:
            return content[:start] + content[start:stop].replace(old, new, 1) + content[stop:]
    return _flipped(content, draw)
