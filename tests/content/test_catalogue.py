"""Every file of the catalogue: complete, in range, sourced, readable, and in words of its own."""

import re
import tomllib
from itertools import combinations
from pathlib import Path

import pytest

from engine.design.catalogue import CATALOGUE_FOLDER, CATEGORIES, catalogue
from engine.design.settings import PLAN_NAMES

FILES = sorted(CATALOGUE_FOLDER.glob("**/*.toml"))
PAGE = ("summary", "at_a_glance", "did_you_know", "rule_of_thumb", "watch_out")
MAX_WORDS = 30
FILLER = {
    "basically", "actually", "really", "very", "obviously", "essentially", "leverage", "leverages", "robust",
    "seamless", "seamlessly", "powerful", "utilize", "delve", "crucial", "cutting-edge", "simply", "note",
}  # fmt: skip


def sentences(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.?!:;])\s+", text.strip()) if part]


def words(text: str) -> list[str]:
    return re.findall(r"[\w’'%×√÷-]+", text.lower())


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def page(request) -> tuple[Path, dict]:
    return request.param, tomllib.loads(request.param.read_text(encoding="utf-8"))


def test_every_file_is_a_kind():
    kinds = catalogue()
    assert {path.stem for path in FILES} == set(kinds)
    assert {kind.plan for kind in kinds.values()} == set(PLAN_NAMES), "a plan without a component"
    assert {kind.category for kind in kinds.values()} == set(CATEGORIES)


def test_the_file_lies_where_it_says(page):
    path, raw = page
    assert (raw["id"], raw["category"]) == (path.stem, path.parent.name)
    assert set(raw["defaults"]) and set(raw["prices"]) and raw["shown"] and raw["keywords"]


def test_it_says_where_its_figures_come_from(page):
    _, raw = page
    assert raw["sources"], "no source at all"
    for source in raw["sources"]:
        assert source["url"].startswith("https://") and len(words(source["figure"])) >= 2
    # No public figure fits every setting, so each page says that some of its numbers are ours.
    said = " ".join([*(raw[field] for field in PAGE), *(source["figure"] for source in raw["sources"])])
    assert "estimate" in said


def test_the_page_is_readable(page):
    _, raw = page
    for field in PAGE:
        text = raw[field]
        assert text == text.strip() and text[-1] in ".?", f"{field} ends in no full stop"
        assert "!" not in text, f"{field} shouts"
        for sentence in sentences(text):
            assert len(words(sentence)) <= MAX_WORDS, f"{field}: {sentence}"
        assert not FILLER & set(words(text)), f"{field}: {FILLER & set(words(text))}"
    assert len(raw["summary"]) <= 110 and len(sentences(raw["summary"])) <= 2
    assert all(len(raw[field]) >= 40 for field in PAGE)


def test_keywords_find_it(page):
    _, raw = page
    keywords = raw["keywords"]
    assert keywords == [word.lower() for word in keywords] and len(set(keywords)) == len(keywords)
    assert raw["name"].lower() not in keywords


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("redis", "memory-cache"),
        ("kafka", "event-log"),
        ("temporal", "checkpoint-store"),
        ("mcp", "tool-server"),
    ],
)
def test_a_product_name_finds_the_component(word, kind):
    assert [found.id for found in catalogue().values() if word in found.keywords] == [kind]


def test_no_two_kinds_share_wording():
    """No sentence stands twice, and no run of six words stands on two pages."""
    runs = {}
    for kind in catalogue().values():
        tokens = [words(getattr(kind, field)) for field in PAGE]
        runs[kind.id] = {tuple(part[i : i + 6]) for part in tokens for i in range(len(part) - 5)}
    shared = [
        (one, other, " ".join(run)) for one, other in combinations(runs, 2) for run in runs[one] & runs[other]
    ]
    assert not shared
    for field in (*PAGE, "name"):
        texts = [getattr(kind, field) for kind in catalogue().values()]
        assert len(set(texts)) == len(texts), field


def test_a_default_is_stated_only_where_it_differs(page):
    _, raw = page
    kind = catalogue()[raw["id"]]
    usual = {name: setting.default for name, setting in kind.settings.items()}
    same = [name for name, value in kind.defaults.items() if value == usual[name]]
    # What the page is about may be stated although it is the usual value.
    assert not set(same) - set(kind.shown) - {"steps_model"}


def test_the_first_settings_shown_exist_and_matter(page):
    _, raw = page
    shown = raw["shown"]
    assert 2 <= len(shown) <= 10 and len(set(shown)) == len(shown)
    assert set(shown) <= set(catalogue()[raw["id"]].settings)


@pytest.mark.parametrize("kind", catalogue().values(), ids=lambda kind: kind.id)
def test_at_its_default_size_it_costs_its_credits_an_hour(kind):
    """Traffic is not on the bill; everything else costs what placing it costs, within a tenth."""
    price = kind.prices["base"] + sum(
        value * float(kind.values[name]) for name, value in kind.prices.items() if name != "base"
    )
    assert price == (0 if kind.is_source else pytest.approx(kind.credits, rel=0.1))


def test_the_checkpoint_store():
    kind = catalogue()["checkpoint-store"]
    assert (kind.credits, kind.zone, kind.category, kind.plan) == (6, "data", "agents", "all")
    assert (kind.values["slots"], kind.values["queue"], kind.values["p50_ms"]) == (10, 100, 50)
