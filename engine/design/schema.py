"""The shape of the files: what a table may hold, decoded strictly, with one clear line for what it may not.

Numbers and settings are decoded as they stand and checked by their `Setting` afterwards; these records decide
which keys there are, which of them must be there, and whether a value is text, a list or a table.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any, TypeVar

import msgspec

from engine.design.errors import DesignError, check_encodable, join, show, to_key, unknown

MAX_BYTES = 20 * 1024 * 1024
MAX_DEPTH = 32
# TOML is read by a parser in Python, which takes some seconds for this much.
MAX_TOML_LINES = 400_000
MAX_TOML_VALUES = 1_000_000

T = TypeVar("T")


class Record(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A table of a file.  A key that is not listed here is refused."""


class NodeRecord(Record):
    id: str
    kind: str
    label: str = ""
    x: Any = 0.0
    y: Any = 0.0
    settings: dict[str, Any] = {}


class EdgeRecord(Record):
    source: str = msgspec.field(name="from")
    target: str = msgspec.field(name="to")
    id: str | None = None
    settings: dict[str, Any] = {}


class FaultRecord(Record):
    at_s: Any
    kind: str
    duration_s: Any = 0.0
    node: str | None = None
    edge: str | None = None
    amount: Any = None


class ObjectiveRecord(Record):
    metric: str
    op: str
    target: Any
    of: str | None = None
    within_ms: Any = None
    from_s: Any = None
    to_s: Any = None


class ChangeRecord(Record):
    name: str
    set: dict[str, Any] = {}
    add_nodes: list[NodeRecord] = []
    add_edges: list[EdgeRecord] = []
    remove: list[str] = []
    why: str = ""


class BudgetRecord(Record):
    run_cost: Any = None
    credits: Any = None


class ProblemRecord(Record):
    id: str
    category: str
    level: Any = 1
    brief: str = ""
    teaches: list[str] = []
    hints: list[str] = []
    debrief: str = ""
    palette: list[str] | None = None
    locked: list[str] = []
    budget: BudgetRecord = msgspec.field(default_factory=BudgetRecord)
    objectives: list[ObjectiveRecord] = []
    solutions: list[ChangeRecord] = []
    traps: list[ChangeRecord] = []


class DesignRecord(Record):
    format: Any
    name: str = ""
    seed: Any = None
    duration_s: Any = None
    warmup_s: Any = None
    drain_s: Any = None
    nodes: list[NodeRecord] = []
    edges: list[EdgeRecord] = []
    faults: list[FaultRecord] | None = None
    problem: ProblemRecord | str | None = None


class SourceRecord(Record):
    figure: str
    url: str


class KindRecord(Record):
    id: str
    name: str
    category: str
    zone: str
    credits: Any
    plan: str
    summary: str
    at_a_glance: str
    did_you_know: str
    rule_of_thumb: str
    watch_out: str
    keywords: list[str] = []
    shown: list[str] = []
    defaults: dict[str, Any] = {}
    prices: dict[str, Any] = {}
    sources: list[SourceRecord] = []


# The record at a path of a file, its list indices left out.
_RECORDS: dict[type, dict[str, type]] = {
    KindRecord: {"": KindRecord, "sources": SourceRecord},
    DesignRecord: {
        "": DesignRecord,
        "nodes": NodeRecord,
        "edges": EdgeRecord,
        "faults": FaultRecord,
        "problem": ProblemRecord,
        "problem.budget": BudgetRecord,
        "problem.objectives": ObjectiveRecord,
        **{
            f"problem.{part}{rest}": record
            for part in ("solutions", "traps")
            for rest, record in (("", ChangeRecord), (".add_nodes", NodeRecord), (".add_edges", EdgeRecord))
        },
    },
}

_WORDS = {
    "str": "text",
    "object": "a table",
    "array": "a list",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}


def convert(raw: object, record: type[T]) -> T:
    """`raw` as a record.  Raises DesignError with the path of the first thing that does not fit."""
    try:
        return msgspec.convert(raw, record)
    except msgspec.ValidationError as error:
        raise _reworded(str(error), record) from None


def _reworded(text: str, record: type) -> DesignError:
    what, _, path = text.partition(" - at ")
    path = path.strip("`").removeprefix("$").removeprefix(".")
    here = _RECORDS[record].get(re.sub(r"\[[^]]*\]", "", path))
    if found := re.fullmatch(r"Object contains unknown field `(.*)`", what, re.DOTALL):
        known = here.__struct_encode_fields__ if here else ()
        return DesignError(unknown("key", found[1], known), to_key(path, found[1]))
    if found := re.fullmatch(r"Object missing required field `(.*)`", what):
        return DesignError("is missing", join(path, found[1]))
    if found := re.fullmatch(r"Expected `(.*)`, got `(.*)`", what):
        wanted, got = (
            " or ".join(
                _WORDS.get(part, f"a {part}") for part in side.split(" | ") if side == part or part != "null"
            )
            for side in found.groups()
        )
        return DesignError(f"is {got}; allowed is {wanted}", path)
    return DesignError(what, path)


def decode(data: bytes, fmt: str) -> dict:
    """The table written in a file, `fmt` toml or json.

    Raises DesignError for a file that is too large, empty, no UTF-8, no valid TOML or JSON, that names a key
    twice, nests too deep or is no table at all.
    """
    if len(data) > MAX_BYTES:
        raise DesignError(f"is {len(data):,} bytes long; allowed are {MAX_BYTES:,}")
    text = _text(data)
    try:
        raw = tomllib.loads(_bounded_toml(text)) if fmt == "toml" else _json(text)
    except RecursionError:
        raise DesignError(_TOO_DEEP) from None
    except tomllib.TOMLDecodeError as error:
        why = _one_line(error).replace("Cannot overwrite a value", "a key stands twice in one table")
        raise DesignError(f"is no valid TOML: {why}") from None
    except json.JSONDecodeError as error:
        raise DesignError(f"is no valid JSON: {_one_line(error)}") from None
    except DesignError:
        raise
    except ValueError as error:
        # A whole number of thousands of digits, which Python takes too long to read.
        why = "a whole number of thousands of digits" if "digits" in str(error) else _one_line(error)
        raise DesignError(f"holds a value that cannot be read: {why}") from None
    if not isinstance(raw, dict):
        raise DesignError(f"holds {show(raw)}; allowed is one table of keys and values")
    _check_tree(raw)
    return raw


_TOO_DEEP = f"nests deeper than {MAX_DEPTH} levels"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:160]


def _text(data: bytes) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DesignError("is UTF-16 text; save it as UTF-8")
    if data.startswith(b"\xef\xbb\xbf"):
        raise DesignError("begins with a byte-order mark; save it as UTF-8 without one")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DesignError(f"is no UTF-8 text (byte {error.start}); a design is a text file") from None
    if "\0" in text:
        raise DesignError("holds a zero byte; a design is a text file")
    if not text.strip():
        raise DesignError("is empty")
    return text


# A dotted key of more parts than any file needs; each part is bare or quoted.  The quantifiers give nothing
# back, so that a search takes time in proportion to the text.
_PART = r"""(?:[\w-]++|"(?:[^"\\]|\\.)*+"|'[^']*+')"""
_LONG_KEY = re.compile(rf"(?<![\w-])(?:{_PART}[ \t]*+\.[ \t]*+){{{MAX_DEPTH + 1}}}")


def _bounded_toml(text: str) -> str:
    """Refuses what makes tomllib take time that grows with the square of the length."""
    lines = text.splitlines()
    if len(lines) > MAX_TOML_LINES:
        raise DesignError(f"has {len(lines):,} lines; allowed are {MAX_TOML_LINES:,}")
    if (commas := text.count(",")) > MAX_TOML_VALUES:
        raise DesignError(f"has {commas:,} commas; allowed are {MAX_TOML_VALUES:,} in TOML, more in JSON")
    for index, line in enumerate(lines, 1):
        if line.count(".") > MAX_DEPTH and _LONG_KEY.search(line):
            raise DesignError(f"line {index} {_TOO_DEEP}")
    return text


class _Twice(dict):
    """A JSON table that names `key` twice; where it stands is known only once all has been read."""

    key: str


def _json(text: str) -> object:
    # NaN and Infinity are read as they stand, so that the value's range refuses them at their path.
    return json.loads(text, object_pairs_hook=_table)


def _table(items: list[tuple[str, object]]) -> dict:
    table = dict(items)
    if len(table) == len(items):
        return table
    seen: set[str] = set()
    twice = _Twice(table)
    twice.key = next(key for key, _ in items if key in seen or seen.add(key))
    return twice


def _check_tree(raw: dict) -> None:
    """Refuses text that cannot be written again, and nesting no later step is made for.  Not recursive."""
    stack: list[tuple[object, str, int]] = [(raw, "", 1)]
    while stack:
        value, path, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise DesignError(_TOO_DEEP, re.split(r"[.[]", path)[0])
        if isinstance(value, _Twice):
            raise DesignError(f"names the key {show(value.key)} twice in one table", path)
        if isinstance(value, dict):
            for key, item in value.items():
                check_encodable(key, path)
                if isinstance(item, (dict, list)):
                    stack.append((item, join(path, key[:60]), depth + 1))
                elif isinstance(item, str):
                    check_encodable(item, join(path, key[:60]))
        else:
            for index, item in enumerate(value):
                if isinstance(item, (dict, list)):
                    stack.append((item, f"{path}[{index}]", depth + 1))
                elif isinstance(item, str):
                    check_encodable(item, f"{path}[{index}]")
