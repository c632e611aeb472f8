"""Random changes of valid documents: of their bytes, or of one node of their structure."""

import json

HOSTILE = [
    *(None, True, False, 0, -1, 1, 2, 3.5, -0.5, 0.0, 1e308, -1e-308, 10**30, 2**63, -(2**63), float("inf")),
    *("", "inf", "-inf", "nan", "x", "\ud800", "\x1b[2J", "a\nb", "../../x", "x" * 300, "__class__", "é☃", "0"),
    *([], {}, [[]], [[1], [2, 3]], [None], {"kind": "array"}, {"kind": "os.system", "argv": "x"}, {"kind": []}),
    {"kind": "array", "dtype": "O", "values": [1], "shape": [1]},
    {"kind": "array", "dtype": "float64", "values": [1.0], "shape": [-1]},
    {"kind": "array", "dtype": "int64", "values": [10**30], "shape": [1]},
    {"kind": "array", "dtype": "float64", "values": [], "shape": [0, 10**9]},
    {"kind": "array", "dtype": "(3,)f8,(", "values": [1], "shape": [1]},
    {"kind": "Settings"},
    {"kind": "Verdict", "name": "CERTIFIED"},
]


def change_bytes(text, rng):
    """Return a copy with a few random changes."""
    text = bytearray(text)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        index, length = rng.randrange(len(text) + 1), rng.choice((1, 1, 2, 8, 40))
        kind = rng.randrange(6)
        if kind == 0 and index < len(text):
            text[index] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del text[index : index + length]
        elif kind == 2:
            text[index:index] = rng.randbytes(length)
        elif kind == 3:
            text[index:index] = text[index : index + length] * rng.choice((1, 3, 50))
        elif kind == 4:
            text[index:index] = rng.choice(
                (b"-", b"9" * length, b"[" * length * 50, b'"', b"e9", b"\\", b"\n", b"\0", b"\xff")
            )
        else:
            del text[index:]
    return bytes(text)


def change_tree(value, rng):
    """Return a copy in which one node is replaced, removed, repeated or exchanged with another."""
    if isinstance(value, (dict, list)) and value and rng.random() < 0.85:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key = rng.choice(keys)
        changed = value.copy()
        kind = rng.randrange(12)
        if kind == 0:
            del changed[key]
        elif kind == 1:
            other = rng.choice(keys)
            changed[key], changed[other] = value[other], value[key]
        elif kind == 2 and isinstance(value, list):
            changed.insert(key, value[key])
        else:
            changed[key] = change_tree(value[key], rng)
        return changed
    if isinstance(value, (int, float)) and rng.random() < 0.5:
        return rng.choice((value + 1, -value, value * 10**6, value / 3, value * 0))
    return rng.choice(HOSTILE)


def change_document(document, rng):
    """Return a changed document as JSON text."""
    if rng.random() < 0.3:
        return change_bytes(json.dumps(document).encode(), rng)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        document = change_tree(document, rng)
    return json.dumps(document).encode()
