"""Valid small things made wrong: bytes, lengths, numbers, and the values of JSON."""

import copy
import json
import math
import struct

from hypothesis import strategies as st

ODD_TEXTS = [
    "",
    " ",
    "nan",
    "inf",
    "-1e400",
    "1e-320",
    "0x1p3",
    "1_000",
    "٣",
    "\x00",
    "\ufeff",
    "\x1b[2J",
    "a" * 300,
    "None",
    "../x",
]
ODD_NUMBERS = [
    0,
    -1,
    1,
    2,
    255,
    2**31,
    -(2**31),
    2**63,
    2**70,
    10**400,
    0.5,
    -0.0,
    1e-320,
    1e300,
    math.inf,
    -math.inf,
    math.nan,
]
ODD_VALUES = st.one_of(
    st.sampled_from([None, True, False, [], {}, [[]], {"a": 1}]),
    st.sampled_from(ODD_NUMBERS),
    st.sampled_from(ODD_TEXTS),
    st.integers(-5, 5),
    st.text(max_size=5),
)
_INTEGERS = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]


@st.composite
def mutated(draw, seeds, least=0, most=6):
    """One of some byte strings, with a few bytes, words or stretches changed, repeated, left out or put elsewhere."""
    content = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(least, most))):
        kind = draw(
            st.sampled_from(["flip", "byte", "word", "double", "cut", "insert", "repeat", "swap", "end", "digits"])
        )
        at = draw(st.integers(0, max(len(content) - 1, 0)))
        size = draw(st.integers(1, 12))
        _CHANGES[kind](content, at, size, draw)
    return bytes(content)


def _flip(content, at, size, draw):
    if content:
        content[at] ^= 1 << draw(st.integers(0, 7))


def _byte(content, at, size, draw):
    content[at : at + 1] = bytes([draw(st.integers(0, 255))])


def _word(content, at, size, draw):
    order, value = draw(st.sampled_from("<>")), draw(st.sampled_from(_INTEGERS))
    content[at : at + 4] = struct.pack(f"{order}I", value)


def _double(content, at, size, draw):
    form = draw(st.sampled_from(["<d", ">d", "<f", ">f"]))
    content[at : at + struct.calcsize(form)] = struct.pack(
        form, draw(st.sampled_from([math.nan, math.inf, -1e30, 0.0, 1e-40]))
    )


def _cut(content, at, size, draw):
    del content[at : at + size]


def _insert(content, at, size, draw):
    content[at:at] = draw(st.one_of(st.binary(max_size=6), st.sampled_from([t.encode() for t in ODD_TEXTS])))


def _repeat(content, at, size, draw):
    content[at:at] = content[at : at + size] * draw(st.sampled_from([1, 2, 50]))


def _swap(content, at, size, draw):
    other = draw(st.integers(0, max(len(content) - 1, 0)))
    content[at : at + size], content[other : other + size] = content[other : other + size], content[at : at + size]


def _end(content, at, size, draw):
    del content[at:]


def _digits(content, at, size, draw):
    """Another number in the place of one that is written in digits."""
    places = [i for i in range(at, len(content)) if chr(content[i]).isdigit()][:1]
    for place in places:
        end = place
        while end < len(content) and content[end : end + 1] in b"0123456789.eE+-":
            end += 1
        content[place:end] = str(draw(st.sampled_from([*ODD_NUMBERS[:-3], "1e400", "1e-400", "007", "1.5"])))[
            :60
        ].encode()


_CHANGES = {
    "flip": _flip,
    "byte": _byte,
    "word": _word,
    "double": _double,
    "cut": _cut,
    "insert": _insert,
    "repeat": _repeat,
    "swap": _swap,
    "end": _end,
    "digits": _digits,
}


@st.composite
def json_mutated(draw, documents, most=3):
    """One of some JSON values, with a few of its parts replaced, left out, repeated or put in the place of others."""
    root = [copy.deepcopy(draw(st.sampled_from(documents)))]
    for _ in range(draw(st.integers(1, most))):
        places = [*_places(root)]
        holder, key = places[draw(st.integers(0, len(places) - 1))]
        kind = draw(st.sampled_from(["replace", "replace", "remove", "repeat", "graft", "scale"]))
        if kind == "replace" or holder is root:
            holder[key] = copy.deepcopy(draw(ODD_VALUES))
        elif kind == "remove":
            del holder[key]
        elif kind == "repeat" and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        elif kind == "graft":
            other, name = places[draw(st.integers(0, len(places) - 1))]
            holder[key] = copy.deepcopy(other[name])
        elif isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
            holder[key] = holder[key] * draw(st.sampled_from([-1, 0, 1000, 0.1, 10**9]))
    return root[0]


def _places(value):
    if isinstance(value, list | dict):
        for key in range(len(value)) if isinstance(value, list) else [*value]:
            yield value, key
            yield from _places(value[key])


def as_json(value):
    """JSON text, with the numbers that JSON has not as Python writes them."""
    return json.dumps(value)
