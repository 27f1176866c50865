"""Reads and writes designs: `.toml` written by people, `.json` saved by the app, one schema for both."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from engine.design import toml
from engine.design.catalogue import ROOT, Kind, catalogue
from engine.design.errors import DesignError, join, nearest, show, unknown
from engine.design.model import Design
from engine.design.parts import Change, Edge, Fault, Node, Objective, Problem
from engine.design.problems import attempt_on, check_problem, problem_from
from engine.design.schema import (
    MAX_BYTES,
    ChangeRecord,
    DesignRecord,
    EdgeRecord,
    NodeRecord,
    convert,
    decode,
)
from engine.design.settings import HEADER
from engine.design.trace import trace_file

FORMAT = 1
PROBLEMS_FOLDER = ROOT / "problems"
ENCODINGS = {".toml": "toml", ".json": "json"}

# What turns a table of one format into the next, by the number of the older one.
MIGRATIONS: dict[int, Callable[[dict], dict]] = {}


def load(path_or_id: str | os.PathLike[str]) -> Design:
    """The design in a file, or the problem with this id.

    Raises DesignError: one line with the file, the path to the value, what is wrong and what is allowed.
    """
    path = Path(path_or_id)
    if isinstance(path_or_id, str) and re.fullmatch(r"[a-z0-9_-]{1,100}", path_or_id):
        found = _problem_file(path_or_id)
        if found is None and not path.exists():
            known = [file.stem for file in _problem_files()]
            raise DesignError(
                f"there is no such file, and no problem has this id; {nearest(path_or_id, known)}",
                file=path_or_id,
            )
        path = found or path
    fmt = ENCODINGS.get(path.suffix.lower())
    if fmt is None and not path.is_dir():
        raise DesignError("has no ending that says what it is; allowed are .toml and .json", file=str(path))
    return loads(_read(path), fmt or "toml", str(path))


def loads(text: str | bytes, fmt: str = "toml", name: str = "") -> Design:
    """The design written in `text`; `fmt` is toml or json, and `name` the file's name for messages.

    A `trace_csv` that names a file is read from beside `name`.  Raises DesignError.
    """
    try:
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        return _design(_record(data, fmt), Path(name) if name else None)
    except DesignError as error:
        raise error if error.file else error.of_file(name) from None


def dumps(design: Design, fmt: str = "toml", folder: Path | None = None) -> str:
    """The text of a design, `fmt` toml or json: only what differs from the catalogue.

    Reading it gives an equal design.  An attempt is written with the id of its problem alone, or, for a
    problem that is not one of Redline's own, with the path of its file, as seen from `folder`.
    """
    table = to_table(design)
    if design.attempt and _problem_file(design.problem.id) is None and design.problem.file is not None:
        table["problem"] = _seen_from(design.problem.file, folder)
    if fmt == "toml":
        return toml.dumps(table)
    return msgspec.json.format(msgspec.json.encode(table), indent=1).decode() + "\n"


def save(design: Design, path: str | os.PathLike[str]) -> None:
    """Writes a design to a file, whole or not at all.

    A file that is there already is replaced only if it can be read as a design: what this version cannot open
    is kept untouched.  Raises DesignError.
    """
    path = Path(path)
    fmt = ENCODINGS.get(path.suffix.lower())
    if fmt is None:
        raise DesignError("has no ending that says what it is; allowed are .toml and .json", file=str(path))
    try:
        path = path.resolve()
        if path.exists():
            try:
                load(path)
            except DesignError as error:
                why = f"{error.path}: {error.text}" if error.path else error.text
                raise DesignError(
                    f"is kept as it is, because it cannot be read ({why}); choose another name",
                    file=str(path),
                ) from None
        _replace(path, dumps(design, fmt, path.parent).encode())
    except DesignError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        # A zero byte in the name is a ValueError, links that lead in a circle are a RuntimeError.
        why = getattr(error, "strerror", None) or error
        raise DesignError(f"cannot be written: {why}", file=str(path)) from None


def _replace(path: Path, data: bytes) -> None:
    """A new file beside the old one, on the disk before it takes the old one's name."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # A temporary file is private; a saved one is as open as the one before it, or as any new file.
        os.chmod(temporary, stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _read(path: Path) -> bytes:
    try:
        info = path.stat()
        if stat.S_ISDIR(info.st_mode):
            raise DesignError("is a folder; allowed is a .toml or .json file", file=str(path))
        if not stat.S_ISREG(info.st_mode):
            raise DesignError("is no ordinary file", file=str(path))
        if info.st_size > MAX_BYTES:
            raise DesignError(f"is {info.st_size:,} bytes long; allowed are {MAX_BYTES:,}", file=str(path))
        return path.read_bytes()
    except FileNotFoundError:
        raise DesignError("there is no such file", file=str(path)) from None
    except DesignError:
        raise
    except (OSError, ValueError) as error:
        # ValueError: a zero byte in the name.
        raise DesignError(
            f"cannot be read: {getattr(error, 'strerror', None) or error}", file=str(path)
        ) from None


def _migrated(raw: dict) -> dict:
    """A table of any known format as one of the newest."""
    if "format" not in raw:
        raise DesignError(f"is missing; this version writes format = {FORMAT}", "format")
    version = raw["format"]
    if type(version) is not int or version < 1:
        raise DesignError(f"is {show(version)}; allowed are whole numbers from 1 to {FORMAT}", "format")
    if version > FORMAT:
        raise DesignError(
            f"is {show(version)}, newer than this version of Redline can read (up to {FORMAT}); update "
            "Redline",
            "format",
        )
    while version < FORMAT:
        raw = MIGRATIONS[version](raw)
        version += 1
    return {**raw, "format": FORMAT}


# --- records to a design


def _record(data: bytes, fmt: str) -> DesignRecord:
    return convert(_migrated(decode(data, fmt)), DesignRecord)


def _design(record: DesignRecord, file: Path | None) -> Design:
    kinds = catalogue()
    nodes = [_node(node, kinds, f"nodes[{index}]", file) for index, node in enumerate(record.nodes)]
    edges = [_edge(edge, f"edges[{index}]") for index, edge in enumerate(record.edges)]
    faults = None
    if record.faults is not None:
        faults = [
            Fault.make(f.kind, f.node, f.edge, f.at_s, f.duration_s, f.amount, f"faults[{index}]")
            for index, f in enumerate(record.faults)
        ]
    header = {name: getattr(record, name) for name in HEADER}
    name = record.name or (file.name.split(".")[0] if file else "")
    if isinstance(record.problem, str):
        start = _start_of(record.problem, file)
        return attempt_on(start, nodes, edges, record.name or start.name, header, faults)
    problem = None
    if record.problem is not None:
        changes = {
            part: [
                _change(c, kinds, f"problem.{part}[{i}]") for i, c in enumerate(getattr(record.problem, part))
            ]
            for part in ("solutions", "traps")
        }
        problem = problem_from(record.problem, kinds, **changes, file=file and file.absolute())
    design = Design(
        name[:200] if not record.name else name,
        **header,
        nodes=nodes,
        edges=edges,
        faults=faults or [],
        problem=problem,
    )
    if problem is not None:
        check_problem(design)
    return design


def _node(record: NodeRecord, kinds: Mapping[str, Kind], path: str, file: Path | None = None) -> Node:
    if record.kind not in kinds:
        raise DesignError(unknown("kind", record.kind, kinds), join(path, "kind"))
    settings = record.settings
    if isinstance(settings.get("trace_csv"), str):
        here = join(path, "settings.trace_csv")
        settings = {**settings, "trace_csv": trace_file(settings["trace_csv"], file, here)}
    return Node.make(record.id, kinds[record.kind], record.label, record.x, record.y, settings, path)


def _edge(record: EdgeRecord, path: str) -> Edge:
    return Edge.make(record.source, record.target, record.id, record.settings, path)


def _change(record: ChangeRecord, kinds: Mapping[str, Kind], path: str) -> Change:
    return Change(
        record.name,
        dict(record.set),
        tuple(
            _node(node, kinds, f"{path}.add_nodes[{index}]") for index, node in enumerate(record.add_nodes)
        ),
        tuple(_edge(edge, f"{path}.add_edges[{index}]") for index, edge in enumerate(record.add_edges)),
        tuple(record.remove),
        record.why,
    )


# --- a design to a table


def to_table(design: Design) -> dict[str, object]:
    """A design as the nested tables and lists of its file."""
    table: dict[str, object] = {"format": FORMAT, "name": design.name, "seed": design.seed}
    if not design.attempt:
        table |= {name: _plain(getattr(design, name)) for name in HEADER if name != "seed"}
    else:
        table["problem"] = design.problem.id
    table["nodes"] = [_node_table(node) for node in design.nodes]
    table["edges"] = [_edge_table(edge) for edge in design.edges]
    if not design.attempt:
        table["faults"] = [_fault_table(fault) for fault in design.faults]
        if design.problem is not None:
            table["problem"] = _problem_table(design.problem)
    return {key: value for key, value in table.items() if value != []}


def _plain(value: object) -> object:
    """Whole numbers without their `.0`, as people write them."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return value


def _some(**fields: object) -> dict[str, object]:
    """The fields that say something, plain."""
    return {
        name: _plain(value)
        for name, value in fields.items()
        if value is not None and value not in ("", (), {})
    }


def _node_table(node: Node) -> dict[str, object]:
    return {
        "id": node.id,
        "kind": node.kind.id,
        **_some(label=node.label if node.label != node.kind.name else None),
        "x": _plain(node.x),
        "y": _plain(node.y),
        **_some(settings=node.settings),
    }


def _edge_table(edge: Edge) -> dict[str, object]:
    usual = edge.id == f"{edge.source}->{edge.target}"
    table = {"from": edge.source, "to": edge.target, **_some(settings=edge.settings)}
    return table if usual else {"id": edge.id, **table}


def _fault_table(fault: Fault) -> dict[str, object]:
    return _some(
        at_s=fault.at_s,
        duration_s=fault.duration_s,
        node=fault.node,
        edge=fault.edge,
        kind=fault.kind,
        amount=fault.amount,
    )


def _change_table(change: Change) -> dict[str, object]:
    return {
        "name": change.name,
        **_some(why=change.why, remove=change.remove, set=change.set),
        **_some(
            add_nodes=[_node_table(n) for n in change.add_nodes] or None,
            add_edges=[_edge_table(e) for e in change.add_edges] or None,
        ),
    }


def _objective_table(objective: Objective) -> dict[str, object]:
    return _some(
        metric=objective.metric,
        of=objective.of,
        op=objective.op,
        target=objective.target,
        within_ms=objective.within_ms,
        from_s=objective.from_s,
        to_s=objective.to_s,
    )


def _problem_table(problem: Problem) -> dict[str, object]:
    return {
        **_some(
            id=problem.id,
            category=problem.category,
            level=problem.level,
            brief=problem.brief,
            teaches=problem.teaches,
            hints=problem.hints,
            debrief=problem.debrief,
        ),
        **({} if problem.palette is None else {"palette": list(problem.palette)}),
        **_some(
            locked=problem.locked,
            budget=_some(run_cost=problem.budget.run_cost, credits=problem.budget.credits) or None,
        ),
        **{
            part: [write(item) for item in items]
            for part, write, items in (
                ("objectives", _objective_table, problem.objectives),
                ("solutions", _change_table, problem.solutions),
                ("traps", _change_table, problem.traps),
            )
            if items
        },
    }


# --- problems by their id


@dataclass(frozen=True)
class ProblemInfo:
    """A problem as a list shows it."""

    id: str
    title: str
    category: str
    level: int
    path: Path


def problems(on_error: Callable[[DesignError], None] | None = None) -> list[ProblemInfo]:
    """Every problem in `problems/`, by category, level and id.

    A file that cannot be read is given to `on_error`; without it the error is raised.
    """
    found = []
    for path in _problem_files():
        try:
            design = load_problem(path.stem)
        except DesignError as error:
            if on_error is None:
                raise
            on_error(error)
            continue
        problem = design.problem
        found.append(ProblemInfo(problem.id, design.name, problem.category, problem.level, path))
    return sorted(found, key=lambda info: (info.category, info.level, info.id))


def load_problem(id: str, path: str = "") -> Design:
    """The start of the problem with this id.  Raises DesignError with the nearest id, at `path`."""
    file = _problem_file(id)
    if file is None:
        raise DesignError(unknown("problem", id, [known.stem for known in _problem_files()]), path)
    design = load(file)
    if design.problem is None or design.attempt or design.problem.id != id:
        raise DesignError(f"is not {show(id)}; a problem's file bears its id", "problem.id", str(file))
    return design


def _start_of(problem: str, file: Path | None) -> Design:
    """The start of the problem that an attempt in `file` names, by its id or by the path of its file."""
    if not problem.endswith(tuple(ENCODINGS)):
        return load_problem(problem, "problem")
    where = (file.parent if file else Path()) / problem
    try:
        record = _record(_read(where), ENCODINGS[where.suffix])
        if isinstance(record.problem, str) or record.problem is None:
            raise DesignError("holds no problem", file=str(where))
        return _design(record, where)
    except DesignError as error:
        raise error if error.file else error.of_file(str(where)) from None


def _seen_from(file: Path, folder: Path | None) -> str:
    try:
        return Path(os.path.relpath(file, folder)).as_posix() if folder else file.as_posix()
    except ValueError:  # another drive
        return file.as_posix()


def _problem_files() -> list[Path]:
    return sorted(PROBLEMS_FOLDER.glob("*/*.toml"))


def _problem_file(id: str) -> Path | None:
    if not re.fullmatch(r"[a-z0-9_-]{1,100}", id):
        return None
    return next(iter(sorted(PROBLEMS_FOLDER.glob(f"*/{id}.toml"))), None)
