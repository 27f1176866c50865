"""The rules of the house: who may import whom, and what a file may hold."""

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOP_LEVEL = {
    "main.py", "ui", "engine", "assets", "problems", "tests", "packaging",
    "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", ".ci", ".gitignore",
}  # fmt: skip
MOST_LINES = 600
WRITTEN = {".py", ".c", ".toml", ".md", ".sh", ""}
# Spelled so that this file does not contain what it looks for.
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:work|root|tmp|home/\w+|Users/\w+)/|[A-Z]:\\Users")
PRIVATE_FOLDER = re.compile(r"\bshared" + "/")


def _files() -> list[Path]:
    """The project's own files: what git tracks, or in a copy without git everything that is no by-product."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True)
    if listed.returncode == 0 and listed.stdout:
        names = listed.stdout.decode().rstrip("\0").split("\0")
        return [ROOT / name for name in names if (ROOT / name).is_file()]
    by_products = re.compile(r"\.venv|__pycache__|.*\.egg-info|build|dist|\.git|\..*_cache|\.hypothesis")
    return [
        path
        for path in ROOT.rglob("*")
        if path.is_file() and not any(by_products.fullmatch(part) for part in path.relative_to(ROOT).parts)
    ]


FILES = _files()


def _blocks(text: str) -> list[tuple[str, str]]:
    """(language, content) of every fenced block."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def _imports(path: Path) -> set[str]:
    """The top-level names that a module imports anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").split(".")[0])
    return found


def test_the_engine_knows_no_window():
    modules = [path for path in FILES if path.suffix == ".py" and path.is_relative_to(ROOT / "engine")]
    assert modules
    for path in modules:
        assert not _imports(path) & {"PySide6", "shiboken6", "pyqtgraph", "pytestqt", "ui"}, path


def test_the_top_level_is_fixed():
    assert {path.relative_to(ROOT).parts[0] for path in FILES} <= TOP_LEVEL


def test_files_are_short():
    long = {
        str(path.relative_to(ROOT)): lines
        for path in FILES
        if path.suffix in WRITTEN and (lines := path.read_bytes().count(b"\n")) > MOST_LINES
    }
    assert not long


@pytest.mark.parametrize("pattern", [MACHINE_PATHS, PRIVATE_FOLDER], ids=["machine paths", "private folder"])
def test_nothing_of_one_machine(pattern):
    found = []
    for path in FILES:
        if path.suffix not in WRITTEN | {".json", ".svg"}:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert not found


def test_the_readme_begins_with_the_two_commands():
    blocks = _blocks((ROOT / "README.md").read_text(encoding="utf-8"))
    (shell, start), (shell_too, test) = blocks[:2]
    assert {shell, shell_too} == {"sh"}
    for command in (start, test):
        assert command.count("\n") == 1
        assert command.startswith("python3 -m venv .venv && .venv/bin/pip install -e ")
    assert "main.py" in start and ".[test]" in test and "pytest" in test
    assert [language for language, _ in blocks[2:4]] == ["powershell", "powershell"]


def test_every_dependency_is_explained():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["test"], *extras["dev"]]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.split("## Dependencies", 1)[1].split("\n## ", 1)[0].lower()
    for requirement in wanted:
        name = re.match(r"[\w.-]+", requirement)[0].lower()
        assert f"`{name}`" in section, name


def test_the_ci_runs_the_readmes_command():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    fence = int(re.search(r"awk '/\^```/ \{ fence\+\+; next \} fence == (\d)' README.md", script)[1])
    assert fence == 3  # what follows the third fence is the second block
    assert "pytest" not in script
