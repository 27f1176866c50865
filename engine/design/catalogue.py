"""The catalogue: one `Kind` for each component, read from `assets/catalogue/<category>/<kind>.toml`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from engine.design.errors import DesignError, show, to_key, unknown
from engine.design.schema import KindRecord, convert, decode
from engine.design.settings import PLAN_NAMES, Setting, check_together, settings_of

ROOT = Path(__file__).resolve().parents[2]
CATALOGUE_FOLDER = ROOT / "assets" / "catalogue"
CATEGORIES = ("traffic", "edge", "compute", "data", "messaging", "resilience", "agents", "external")
ZONES = ("client", "edge", "compute", "data", "messaging", "observability", "external")
MAX_CREDITS = 10_000
MAX_PRICE = 1e6
_PAGE = ("name", "summary", "at_a_glance", "did_you_know", "rule_of_thumb", "watch_out")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a figure of a page comes from."""

    figure: str
    url: str


@dataclass(frozen=True, eq=False, slots=True)
class Kind:
    """A component of the catalogue: what it is, what it costs, its page, and its settings' defaults.

    `defaults` holds only what the file states; `values` is every setting of the plan with its default.
    `prices` is in credits an hour for each instance, `base` among them.  `settings` maps each name to its
    `Setting`.
    """

    id: str
    name: str
    category: str
    zone: str
    credits: float
    plan: str
    defaults: Mapping[str, object]
    values: Mapping[str, object]
    prices: Mapping[str, float]
    keywords: tuple[str, ...]
    summary: str
    at_a_glance: str
    did_you_know: str
    rule_of_thumb: str
    watch_out: str
    shown: tuple[str, ...]
    sources: tuple[Source, ...]

    @property
    def settings(self) -> Mapping[str, Setting]:
        return settings_of(self.plan)

    @property
    def is_source(self) -> bool:
        return self.plan == "source"


@cache
def catalogue() -> Mapping[str, Kind]:
    """Every kind by its id, in the order of the categories.  Read once; raises DesignError on a broken
    file.
    """
    return read_catalogue(CATALOGUE_FOLDER)


def read_catalogue(folder: Path) -> Mapping[str, Kind]:
    """The kinds under `folder`, one file each.  Raises DesignError with the file and path of the value."""
    kinds: dict[str, Kind] = {}
    if not folder.is_dir():
        raise DesignError(
            "there is no catalogue here; the folder belongs beside the engine", file=str(folder)
        )
    paths = sorted(folder.glob("*/*.toml"), key=lambda path: (_rank(path.parent.name), path.name))
    for path in paths:
        name = "/".join(path.parts[-3:])
        try:
            kind = read_kind(path.read_bytes(), path.parent.name, path.stem)
            if kind.id in kinds:
                raise DesignError(f"{kind.id!r} is the id of another file too", "id")
        except OSError as error:
            raise DesignError(f"cannot be read: {error.strerror}", file=name) from None
        except DesignError as error:
            raise error.of_file(name) from None
        kinds[kind.id] = kind
    return MappingProxyType(kinds)


def _rank(category: str) -> int:
    return CATEGORIES.index(category) if category in CATEGORIES else len(CATEGORIES)


def read_kind(data: bytes, category: str, stem: str) -> Kind:
    """One file of the catalogue, which lies in the folder `category` under the name `stem`.toml."""
    record = convert(decode(data, "toml"), KindRecord)
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", record.id):
        raise DesignError(
            f"is {show(record.id)}; allowed are lower-case letters, digits and single hyphens", "id"
        )
    for field, value, wanted in (("id", record.id, stem), ("category", record.category, category)):
        if value != wanted:
            raise DesignError(f"is {show(value)}, but the file lies at {category}/{stem}.toml", field)
    for field, value, known in (
        ("category", record.category, CATEGORIES),
        ("zone", record.zone, ZONES),
        ("plan", record.plan, PLAN_NAMES),
    ):
        if value not in known:
            raise DesignError(unknown(field, value, known), field)
    for field in _PAGE:
        if not getattr(record, field).strip():
            raise DesignError("is empty; every page says it", field)
    for index, source in enumerate(record.sources):
        if not re.fullmatch(r"https?://\S+", source.url):
            raise DesignError(f"is {show(source.url)}; allowed is a web address", f"sources[{index}].url")
    settings = settings_of(record.plan)
    defaults = {}
    for name, value in record.defaults.items():
        if name not in settings:
            raise DesignError(unknown("setting", name, settings), to_key("defaults", name))
        defaults[name] = settings[name].check(value, f"defaults.{name}")
    values = {name: defaults.get(name, setting.default) for name, setting in settings.items()}
    if values.get("p99_ms", 0.0) is None:
        values["p99_ms"] = values["p50_ms"]
    check_together(values, "defaults")
    for index, name in enumerate(record.shown):
        if name not in settings:
            raise DesignError(unknown("setting", name, settings), f"shown[{index}]")
    return Kind(
        **{field: getattr(record, field) for field in ("id", "category", "zone", "plan", *_PAGE)},
        credits=_amount(record.credits, "credits", MAX_CREDITS),
        defaults=MappingProxyType(defaults),
        values=MappingProxyType(values),
        prices=MappingProxyType(_prices(record.prices, settings, values)),
        keywords=tuple(record.keywords),
        shown=tuple(record.shown),
        sources=tuple(Source(source.figure, source.url) for source in record.sources),
    )


def _amount(value: object, path: str, high: float) -> float:
    if type(value) not in (int, float) or not 0 <= value <= high:
        raise DesignError(f"is {show(value)}; allowed is a number between 0 and {high:,.0f}", path)
    return float(value)


def _prices(
    raw: Mapping[str, object], settings: Mapping[str, Setting], values: Mapping[str, object]
) -> dict[str, float]:
    prices = {"base": 0.0}
    for name, value in raw.items():
        path = f"prices.{name}"
        if name != "base":
            if name not in settings:
                raise DesignError(unknown("setting", name, ["base", *settings]), to_key("prices", name))
            if not settings[name].numeric or name == "instances":
                why = (
                    "every price counts once for each instance" if name == "instances" else "it is no number"
                )
                raise DesignError(f"has a price, but {why}; allowed are base and numeric settings", path)
            if settings[name].unbounded_at_zero and not values[name]:
                raise DesignError("has a price, but its default 0 is no limit; give it a default", path)
        prices[name] = _amount(value, path, MAX_PRICE)
    return prices
