"""Files that are no designs, cannot be read or cannot be written: one clear line, and nothing is lost."""

import json
import os
import re
import time

import pytest

from engine.design import DesignError, load, loads, save

NODE = {"id": "a", "kind": "app-service"}
DESIGN = {"format": 1, "nodes": [NODE]}


def refused(text: str | bytes, fmt: str = "json") -> DesignError:
    with pytest.raises(DesignError) as caught:
        loads(text, fmt, "my.json")
    line = str(caught.value)
    assert line.startswith("my.json: ") and "\n" not in line and len(line) < 400
    return caught.value


# --- text that is no design at all

TEXTS = [
    ("empty", b"", "is empty"),
    ("blank", b" \n\t\n", "is empty"),
    ("mark", b"\xef\xbb\xbfformat = 1\n", "byte-order mark"),
    ("utf-16", 'format = 1\n'.encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
    ("latin-1", 'format = 1\nname = "é"\n'.encode("latin-1"), "is no UTF-8 text (byte 19)"),
    ("picture", b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "is no UTF-8 text"),
    ("zero byte", b"format = 1\0", "a zero byte"),
    ("prose", b"Hello, world", "is no valid"),
    ("cut off", b"[[nodes", "is no valid"),
    ("a list", b"[1, 2]", ""),
]  # fmt: skip


@pytest.mark.parametrize("fmt", ["toml", "json"])
@pytest.mark.parametrize(("data", "words"), [case[1:] for case in TEXTS], ids=[case[0] for case in TEXTS])
def test_what_is_no_design(data, words, fmt):
    assert words in refused(data, fmt).text


def test_a_list_is_no_design():
    assert refused("[]").text == "holds a list; allowed is one table of keys and values"
    assert refused('"x"').text.startswith("holds 'x'")


def test_a_key_twice():
    error = refused('{"format": 1, "nodes": [{"id": "a", "kind": "app-service", "id": "b"}]}')
    assert str(error) == "my.json: nodes[0]: names the key 'id' twice in one table"
    assert refused('{"format": 1, "seed": 1, "seed": 2}').text == "names the key 'seed' twice in one table"
    error = refused("format = 1\nseed = 1\nseed = 2\n", "toml")
    assert error.text == "is no valid TOML: a key stands twice in one table (at line 3, column 9)"


def test_half_a_surrogate_pair():
    assert refused('{"format": 1, "name": "\\ud800"}').path == "name"
    assert refused('{"format": 1, "nodes": [{"id": "a", "kind": "app-service", "label": "\\udc00"}]}').path


@pytest.mark.parametrize(
    ("fmt", "text"),
    [
        ("json", '{"format": 1, "x": ' + "[" * 100_000),
        ("json", '{"format": 1, "x": ' + "[" * 500 + "]" * 500 + "}"),
        ("json", '{"format": 1, "x": ' + '{"a":' * 40 + "1" + "}" * 41),
        ("toml", "format = 1\nx = " + "[" * 100_000),
        ("toml", "format = 1\nx = " + "[" * 60 + "]" * 60),
        ("toml", "format = 1\nx = " + "{a=" * 100_000),
        ("toml", "a." * 2_000_000 + "b = 1"),
        ("toml", "x = {" + "'a b' . " * 500_000 + "b = 1}"),
        ("toml", "[" + "long_name_" * 20 + "".join(f".{'n' * 100}" for _ in range(50_000)) + "]"),
    ],
    ids=[
        "json-open",
        "json",
        "json-tables",
        "toml-open",
        "toml",
        "toml-tables",
        "dotted",
        "quoted",
        "heading",
    ],
)
def test_deep_nesting(fmt, text):
    began = time.perf_counter()
    assert "nests deeper than 32 levels" in refused(text, fmt).text
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize("fmt", ["toml", "json"])
def test_a_label_of_ten_megabytes(fmt):
    label = "x" * 10_000_000
    text = json.dumps({"format": 1, "nodes": [{**NODE, "label": label}]})
    if fmt == "toml":
        text = f'format = 1\n[[nodes]]\nid = "a"\nkind = "app-service"\nlabel = "{label}"\n'
    began = time.perf_counter()
    error = refused(text, fmt)
    assert error.path.endswith(".label") and error.text == "is 10,000,000 characters long; allowed are 200"
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    ("fmt", "text", "words"),
    [
        ("json", " " * (21 * 2**20), "bytes long; allowed are 20,971,520"),
        ("toml", "#\n" * 500_000, "lines; allowed are 400,000"),
        ("toml", "x = [" + "1," * 2_000_000 + "]", "commas; allowed are 1,000,000"),
        ("json", '{"format": 1, "seed": ' + "9" * 10_000 + "}", "thousands of digits"),
        ("toml", "format = 1\nseed = " + "9" * 10_000, "thousands of digits"),
    ],
)
def test_far_too_much(fmt, text, words):
    began = time.perf_counter()
    assert words in refused(text, fmt).text
    assert time.perf_counter() - began < 2


# --- files


def test_files_that_cannot_be_read(tmp_path):
    def line(path) -> str:
        with pytest.raises(DesignError) as caught:
            load(path)
        assert str(caught.value).startswith(f"{path}: ")
        return caught.value.text

    assert line(tmp_path / "missing.toml") == "there is no such file"
    assert line(tmp_path).startswith("is a folder")
    assert line(str(tmp_path / "x.txt")).startswith("has no ending that says what it is")
    folder = tmp_path / "folder.toml"
    folder.mkdir()
    assert line(folder).startswith("is a folder")
    assert "no problem has this id; did you mean 'checkpointing-every-step'?" in line(
        "checkpointing-every-stp"
    )
    if hasattr(os, "mkfifo"):
        pipe = tmp_path / "pipe.toml"
        os.mkfifo(pipe)
        assert line(pipe) == "is no ordinary file"
    big = tmp_path / "big.json"
    with big.open("wb") as file:
        file.truncate(21 * 2**20)
    assert "allowed are 20,971,520" in line(big)
    loop = tmp_path / "loop.toml"
    loop.symlink_to(loop)
    assert line(loop).startswith("cannot be read")


def test_a_file_without_leave_to_read(tmp_path, monkeypatch):
    path = tmp_path / "mine.toml"
    path.write_text("format = 1\n")

    def denied(self):
        raise PermissionError(13, "Permission denied")

    # Root may read everything, so the refusal is played.
    monkeypatch.setattr(type(path), "read_bytes", denied)
    with pytest.raises(DesignError, match="cannot be read: Permission denied"):
        load(path)


def test_a_name_with_odd_letters():
    with pytest.raises(DesignError) as caught:
        load("a\0b.toml")
    assert "\n" not in str(caught.value)
    with pytest.raises(DesignError) as caught:
        load("a\nb.toml")
    assert "\n" not in str(caught.value)
    with pytest.raises(DesignError):
        load("x" * 5000 + ".toml")
    with pytest.raises(DesignError):
        load("")


UNREADABLE = [
    b"",
    b"garbage",
    b'{"format": 99}',
    b'{"format": 1, "kept": "by a newer version"}',
    b"\xff\xfe\x00",
]


@pytest.mark.parametrize("content", UNREADABLE)
def test_what_cannot_be_read_is_not_overwritten(tmp_path, content):
    path = tmp_path / "mine.redline.json"
    path.write_bytes(content)
    with pytest.raises(DesignError, match="is kept as it is, because it cannot be read"):
        save(loads(json.dumps(DESIGN), "json"), path)
    assert path.read_bytes() == content and os.listdir(tmp_path) == [path.name]


def test_a_save_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "mine.json"
    old = loads(json.dumps({**DESIGN, "name": "old"}), "json")
    save(old, path)

    def full(*_):
        raise OSError(28, "No space left on device")

    for call in ("fsync", "replace"):
        with monkeypatch.context() as patched:
            patched.setattr(os, call, full)
            with pytest.raises(DesignError, match="cannot be written: No space left on device"):
                save(old.replace(name="new"), path)
    assert load(path) == old and os.listdir(tmp_path) == [path.name]
    with pytest.raises(DesignError, match="cannot be written"):
        save(old, tmp_path / "no" / "such" / "folder.json")
    with pytest.raises(DesignError, match="no ending that says what it is"):
        save(old, tmp_path / "mine.txt")
    with pytest.raises(DesignError, match="cannot be written"):
        save(old, "a\0b.json")
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    with pytest.raises(DesignError, match="cannot be written"):
        save(old, tmp_path / "loop.json")
    with pytest.raises(DesignError, match="is kept as it is"):
        (tmp_path / "folder.json").mkdir()
        save(old, tmp_path / "folder.json")


def test_a_refusal_never_shows_a_traceback(tmp_path):
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({"format": 1, "nodes": [{**NODE, "settings": {"slots": "ten"}}]}))
    with pytest.raises(DesignError) as caught:
        load(path)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    assert re.fullmatch(
        r".*bad\.json: nodes\[0\]\.settings\.slots: is 'ten'; allowed is .*", str(caught.value)
    )
