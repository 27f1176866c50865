"""A file of the catalogue is checked as strictly as a design: one clear line for what it may not hold."""

import os

import pytest

from engine.design import DesignError, catalogue, toml
from engine.design.catalogue import CATALOGUE_FOLDER, read_catalogue, read_kind

STORE = {
    "id": "my-store",
    "name": "My store",
    "category": "data",
    "zone": "data",
    "credits": 6,
    "plan": "all",
    "keywords": ["disk"],
    "summary": "s",
    "at_a_glance": "a",
    "did_you_know": "d",
    "rule_of_thumb": "r",
    "watch_out": "w",
    "shown": ["slots"],
    "defaults": {"slots": 10, "p50_ms": 5},
    "prices": {"base": 1, "slots": 0.5},
    "sources": [{"figure": "five", "url": "https://example.org/5"}],
}


def read(**changed):
    table = {key: value for key, value in {**STORE, **changed}.items() if value is not None}
    return read_kind(toml.dumps(table).encode(), "data", "my-store")


def test_a_kind_has_its_page_its_defaults_and_its_prices():
    kind = read()
    assert (kind.id, kind.credits, kind.plan, kind.is_source) == ("my-store", 6.0, "all", False)
    assert dict(kind.defaults) == {"slots": 10, "p50_ms": 5.0}
    assert kind.values["p99_ms"] == 5.0 and kind.values["instances"] == 1
    assert dict(kind.prices) == {"base": 1.0, "slots": 0.5}
    assert kind.sources[0].url == "https://example.org/5" and kind.keywords == ("disk",)
    assert dict(read(prices={}).prices) == {"base": 0.0}


@pytest.mark.parametrize(
    ("changed", "path", "words"),
    [
        ({"colour": "red"}, "colour", "unknown key"),
        ({"name": None}, "name", "is missing"),
        ({"name": " "}, "name", "is empty"),
        ({"watch_out": ""}, "watch_out", "is empty"),
        ({"id": "My Store"}, "id", "lower-case"),
        ({"id": "other"}, "id", "the file lies at data/my-store.toml"),
        ({"category": "agents"}, "category", "the file lies at data/my-store.toml"),
        ({"zone": "date"}, "zone", "did you mean 'data'?"),
        ({"plan": "que"}, "plan", "did you mean 'queue'?"),
        ({"credits": -1}, "credits", "is -1"),
        ({"credits": "6"}, "credits", "is '6'"),
        ({"defaults": {"slot": 1}}, "defaults.slot", "did you mean 'slots'?"),
        ({"defaults": {"slots": 1.5}}, "defaults.slots", "is 1.5"),
        ({"defaults": {"hit_rate": 0.5}}, "defaults.hit_rate", "unknown setting"),
        ({"defaults": {"p50_ms": 5, "p99_ms": 4}}, "defaults.p99_ms", "below p50_ms"),
        ({"defaults": {"cpu_ms": 5}}, "defaults.vcpu", "CPU time needs vcpu above 0"),
        ({"shown": ["slots", "hit_rate"]}, "shown[1]", "unknown setting"),
        ({"prices": {"slotz": 1}}, "prices.slotz", "did you mean 'slots'?"),
        ({"prices": {"slots": -1}}, "prices.slots", "is -1"),
        ({"prices": {"slots": True}}, "prices.slots", "is true"),
        ({"prices": {"cancel": 1}}, "prices.cancel", "it is no number"),
        ({"prices": {"instances": 1}}, "prices.instances", "once for each instance"),
        ({"prices": {"quota_rpm": 1}}, "prices.quota_rpm", "its default 0 is no limit"),
        ({"plan": "shedder", "prices": {"max_in_flight": 1}}, "prices.max_in_flight", "it is no number"),
        ({"sources": [{"figure": "x", "url": "a book"}]}, "sources[0].url", "a web address"),
        ({"sources": [{"figure": "x"}]}, "sources[0].url", "is missing"),
    ],
)  # fmt: skip
def test_one_clear_line(changed, path, words):
    with pytest.raises(DesignError) as caught:
        read(**changed)
    assert caught.value.path == path and words in caught.value.text


def test_a_broken_catalogue_names_the_file(tmp_path):
    folder = tmp_path / "catalogue" / "data"
    folder.mkdir(parents=True)
    (folder / "my-store.toml").write_text(toml.dumps(STORE))
    assert list(read_catalogue(tmp_path / "catalogue")) == ["my-store"]
    (folder / "bad.toml").write_text("id = ")
    with pytest.raises(DesignError, match="^catalogue/data/bad.toml: is no valid TOML"):
        read_catalogue(tmp_path / "catalogue")
    (folder / "bad.toml").unlink()
    twin = tmp_path / "catalogue" / "edge"
    twin.mkdir()
    (twin / "my-store.toml").write_text(toml.dumps({**STORE, "category": "edge"}))
    with pytest.raises(DesignError, match="is the id of another file too"):
        read_catalogue(tmp_path / "catalogue")
    with pytest.raises(DesignError, match="there is no catalogue here"):
        read_catalogue(tmp_path / "nothing")


def test_the_catalogue_is_read_once_and_from_anywhere(tmp_path, monkeypatch):
    assert catalogue() is catalogue()
    monkeypatch.chdir(tmp_path)
    assert dict(read_catalogue(CATALOGUE_FOLDER)).keys() == dict(catalogue()).keys()
    assert os.getcwd() == str(tmp_path)
    with pytest.raises(TypeError):
        catalogue()["new"] = None
