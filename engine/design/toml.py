"""Writes a table as TOML the way people write it: settings on one line, long text over several."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping


def dumps(table: Mapping[str, object]) -> str:
    """The TOML text of nested tables, lists, text, numbers and true/false; keys keep their order."""
    lines: list[str] = []
    _write(table, "", lines)
    return "\n".join(lines).strip("\n") + "\n"


def _write(table: Mapping[str, object], prefix: str, lines: list[str]) -> None:
    later = []
    for key, value in table.items():
        if isinstance(value, Mapping) and key not in _INLINE or _is_tables(value):
            later.append((key, value))
        else:
            lines.append(f"{_key(key)} = {_value(value, key)}")
    for key, value in later:
        name = f"{prefix}{_key(key)}"
        for head, item in (
            [(f"[{name}]", value)] if isinstance(value, Mapping) else [(f"[[{name}]]", v) for v in value]
        ):
            lines += ["", head]
            _write(item, f"{name}.", lines)


# Tables that stand on one line behind their key.
_INLINE = ("settings", "set", "budget")


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _text(key)


def _value(value: object, key: str = "") -> str:
    if isinstance(value, str):
        return _long_text(value) if "\n" in value else _text(value)
    if value is True or value is False:
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(name)} = {_value(item)}" for name, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if key == "hints" and value:
        return "[\n" + "".join(f"    {_value(item)},\n" for item in value) + "]"
    return "[" + ", ".join(_value(item) for item in value) + "]"


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _long_text(text: str) -> str:
    lines = [re.sub(r"\\.", _unescaped_quote, _text(line)[1:-1]) for line in text.split("\n")]
    body = "\n".join(lines).replace('"""', '""\\"')
    if body.endswith('"'):
        body = body[:-1] + '\\"'
    return f'"""\n{body}"""'


def _unescaped_quote(found: re.Match[str]) -> str:
    return '"' if found[0] == '\\"' else found[0]
