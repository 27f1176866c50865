"""The design: what is on the canvas, as one value that is always valid.

A `Design` is never changed in place.  Every change makes a new one, checked before anyone sees it, so an
undo step is the design before, and a thread may read a design while the window edits the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from engine.design.catalogue import catalogue
from engine.design.errors import DesignError, join, nearest, show, to_key, unknown
from engine.design.parts import Change, Edge, Fault, Node, Problem, check_text
from engine.design.settings import EDGE, HEADER
from engine.design.traffic import expected_arrivals

if TYPE_CHECKING:
    import networkx

MAX_NODES = 1_000
MAX_EDGES = 10_000
MAX_FAULTS = 1_000
MOST_IN_ALL = {"instances": 100_000, "partitions": 100_000, "requests": 1e10}


class Design:
    """Nodes, edges and faults, the length and seed of a run, and the problem it belongs to, if any.

    `attempt` is true for a learner's work on a problem: nodes and edges are the learner's, all the rest is
    the problem's.  Two designs are equal when all of that is.  Raises DesignError when the parts do not fit
    together.
    """

    def __init__(
        self,
        name: str = "",
        seed: object = None,
        duration_s: object = None,
        warmup_s: object = None,
        drain_s: object = None,
        nodes: Iterable[Node] = (),
        edges: Iterable[Edge] = (),
        faults: Iterable[Fault] = (),
        problem: Problem | None = None,
        attempt: bool = False,
        paths: Mapping[str, str] | None = None,
    ) -> None:
        """`paths` says where a node or edge comes from that is not at `nodes[3]` of the file, by its id, and
        where its settings do, by `id.settings`.
        """
        self.name = check_text(name, "name")
        self.seed: int = _header("seed", seed)
        self.duration_s: float = _header("duration_s", duration_s)
        self.warmup_s: float = _header("warmup_s", warmup_s)
        self.drain_s: float = _header("drain_s", drain_s)
        self._nodes = _by_id(nodes, "nodes", MAX_NODES, paths or {})
        self._edges = _by_id(edges, "edges", MAX_EDGES, paths or {})
        self._faults: list[Fault] = list(faults)
        self.problem = problem
        self.attempt = attempt
        if self.warmup_s >= self.duration_s:
            raise DesignError(
                f"is {show(self.warmup_s)}; allowed is less than duration_s ({show(self.duration_s)})",
                "warmup_s",
            )
        self._check_edges(paths or {})
        self._check_fallbacks(paths or {})
        if len(self._faults) > MAX_FAULTS:
            raise DesignError(f"has {len(self._faults):,} entries; allowed are {MAX_FAULTS:,}", "faults")
        self.faults = [fault for index, fault in enumerate(self._faults) if self._happens(fault, index)]
        self._check_sizes(paths or {})

    # --- what there is

    @property
    def nodes(self) -> list[Node]:
        """The nodes in the order of the file."""
        return list(self._nodes.values())

    @property
    def edges(self) -> list[Edge]:
        """The edges in the order of the file."""
        return list(self._edges.values())

    @property
    def sources(self) -> list[Node]:
        return [node for node in self._nodes.values() if node.is_source]

    def node(self, id: str) -> Node:
        """The node with this id.  Raises DesignError with the nearest id."""
        if id not in self._nodes:
            raise DesignError(unknown("node", id, self._nodes))
        return self._nodes[id]

    def edge(self, id: str) -> Edge:
        """The edge with this id.  Raises DesignError with the nearest id."""
        if id not in self._edges:
            raise DesignError(unknown("edge", id, self._edges))
        return self._edges[id]

    def __contains__(self, id: str) -> bool:
        return id in self._nodes or id in self._edges

    def out_edges(self, id: str) -> list[Edge]:
        """The edges that leave a node, in the order of the file."""
        return self._out.get(id, [])

    @cached_property
    def _out(self) -> dict[str, list[Edge]]:
        out: dict[str, list[Edge]] = {}
        for edge in self._edges.values():
            out.setdefault(edge.source, []).append(edge)
        return out

    @cached_property
    def graph(self) -> networkx.MultiDiGraph:
        """The design as a frozen graph: node ids with `node=Node`, edges keyed by their id with
        `edge=Edge`.
        """
        import networkx

        graph = networkx.MultiDiGraph(name=self.name)
        graph.add_nodes_from((node.id, {"node": node}) for node in self._nodes.values())
        graph.add_edges_from((e.source, e.target, e.id, {"edge": e}) for e in self._edges.values())
        return networkx.freeze(graph)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Design) and self._state() == other._state()

    __hash__ = None

    def _state(self) -> dict[str, object]:
        # Lists, because the order of the nodes and edges is part of a design.
        return {**self._fields(), "nodes": self.nodes, "edges": self.edges}

    def __repr__(self) -> str:
        return f"<Design {self.name!r}: {len(self._nodes)} nodes, {len(self._edges)} edges>"

    # --- changes: each makes a new design

    def _fields(self) -> dict[str, object]:
        return {
            "name": self.name,
            "seed": self.seed,
            "duration_s": self.duration_s,
            "warmup_s": self.warmup_s,
            "drain_s": self.drain_s,
            "nodes": self._nodes.values(),
            "edges": self._edges.values(),
            "faults": self._faults,
            "problem": self.problem,
            "attempt": self.attempt,
        }

    def replace(self, **fields: object) -> Design:
        """The design with some arguments of `Design(…)` exchanged: `design.replace(seed=7)`."""
        return Design(**{**self._fields(), **fields})

    def copy(self) -> Design:
        """An equal design that shares nothing that can change."""
        return self.replace()

    def with_setting(self, target: str, value: object) -> Design:
        """The design with one setting changed, `store.slots` or `agents->store.calls` (or `edge:` before an
        edge's id); the value None goes back to the catalogue's.  Raises DesignError.
        """
        return self.with_settings({target: value})

    def with_settings(self, values: Mapping[str, object]) -> Design:
        """Several settings changed at once, checked when all are in place."""
        return self.with_change(Change("", set=values))

    def with_change(self, change: Change, path: str = "") -> Design:
        """The design after a change.

        What goes takes along whatever names it: a node's edges, the faults at it, and the `fallback` of an
        edge that stood in for a removed one (which then is an ordinary edge).  Raises DesignError with a
        path that begins with `path`.
        """
        nodes, edges = dict(self._nodes), dict(self._edges)
        gone = _remove(change.remove, nodes, edges, join(path, "remove"))
        faults = [fault for fault in self._faults if self.attempt or fault.target not in gone]
        paths: dict[str, str] = {}
        for part, added, into in (
            ("add_nodes", change.add_nodes, nodes),
            ("add_edges", change.add_edges, edges),
        ):
            for index, item in enumerate(added):
                paths[item.id] = join(path, f"{part}[{index}]")
                if item.id in nodes or item.id in edges:
                    raise DesignError(_taken(item), join(paths[item.id], "id"))
                into[item.id] = item
        for id, values in self._grouped(change.set, nodes, edges, join(path, "set") if path else "").items():
            here = join(join(path, "set") if path else "", id)
            paths[f"{id}.settings"] = here
            if id in nodes:
                nodes[id] = _reset_node(nodes[id], values, here)
            else:
                edge = edges[id]
                kept = {**edge.settings, **values}
                kept = {name: value for name, value in kept.items() if value is not None}
                edges[id] = Edge.make(edge.source, edge.target, id, kept, settings_path=here)
        return self.replace(nodes=nodes.values(), edges=edges.values(), faults=faults, paths=paths)

    @staticmethod
    def _grouped(
        values: Mapping[str, object], nodes: Mapping[str, Node], edges: Mapping[str, Edge], path: str
    ) -> dict[str, dict[str, object]]:
        """`{"store.slots": 40}` by the id of what is set: `{"store": {"slots": 40}}`."""
        grouped: dict[str, dict[str, object]] = {}
        for target, value in values.items():
            id, dot, name = target.rpartition(".")
            if id.startswith("edge:"):
                id, known = id[5:], edges
            else:
                known = nodes if id in nodes else edges
            if not dot or not id or not name:
                raise DesignError(
                    f"{show(target)} names no setting; allowed is node.setting or edge-id.setting", path
                )
            if id not in known:
                raise DesignError(
                    f"{show(target)} names no node or edge; {nearest(id, [*nodes, *edges])}", path
                )
            table = nodes[id].kind.settings if known is nodes else EDGE
            if name not in table:
                what = f"{nodes[id].kind.id!r}" if known is nodes else "a connection"
                raise DesignError(unknown("setting", name, table, what), to_key(path, target))
            grouped.setdefault(id, {})[name] = value
        return grouped

    # --- what the parts say about each other

    def _check_edges(self, paths: Mapping[str, str]) -> None:
        def at(index: int, edge: Edge) -> str:
            return paths.get(edge.id, f"edges[{index}]")

        for index, edge in enumerate(self._edges.values()):
            if edge.id in self._nodes:
                raise DesignError(
                    f"is {show(edge.id)}, which is a node's id too", join(at(index, edge), "id")
                )
            for end, id in (("from", edge.source), ("to", edge.target)):
                if id not in self._nodes:
                    hint = nearest(id, self._nodes)
                    raise DesignError(f"is {show(id)}, which is no node; {hint}", join(at(index, edge), end))
            if self._nodes[edge.target].is_source:
                raise DesignError(
                    f"is {show(edge.target)}, a traffic source; nothing calls a source",
                    join(at(index, edge), "to"),
                )
            if not edge.settings:
                continue
            here = _settings_path(edge.id, "edges", index, paths)
            plan = self._nodes[edge.source].plan
            if edge.settings.get("checkpoint") and plan != "loop":
                raise DesignError(
                    f"is set, but {show(edge.source)} is no agent and saves nothing", join(here, "checkpoint")
                )
            if edge.settings.get("dead_letter") and plan != "queue":
                raise DesignError(f"is set, but {show(edge.source)} is no queue", join(here, "dead_letter"))

    def _check_fallbacks(self, paths: Mapping[str, str]) -> None:
        """Each fallback names an edge out of the same node, and no edge stands in for itself in the end."""
        sound: set[str] = set()
        for index, edge in enumerate(self._edges.values()):
            if "fallback" not in edge.settings:
                continue
            path = join(_settings_path(edge.id, "edges", index, paths), "fallback")
            id = edge.settings["fallback"]
            if id not in self._edges or self._edges[id].source != edge.source:
                hint = nearest(id, [other.id for other in self.out_edges(edge.source) if other is not edge])
                raise DesignError(f"is {show(id)}, which is no edge out of {show(edge.source)}; {hint}", path)
            walked = {edge.id}
            while id not in sound:
                if id in walked:
                    raise DesignError(
                        f"is {show(edge.settings['fallback'])}, so that the edge stands in for itself", path
                    )
                walked.add(id)
                behind = self._edges.get(id)
                if behind is None or "fallback" not in behind.settings:
                    break
                id = behind.settings["fallback"]
            sound |= walked

    def _happens(self, fault: Fault, index: int) -> bool:
        """A problem's faults stay with an attempt; those at what the learner has taken out do not happen."""
        try:
            self.check_fault(fault, f"faults[{index}]")
        except DesignError:
            if not self.attempt:
                raise
            return False
        return True

    def check_fault(self, fault: Fault, path: str = "") -> None:
        """Raises DesignError when the fault is at something that is not there, or cannot happen to it."""
        if fault.edge is not None:
            if fault.edge not in self._edges:
                raise DesignError(
                    f"is {show(fault.edge)}, which is no edge; {nearest(fault.edge, self._edges)}",
                    join(path, "edge"),
                )
            return
        if fault.node not in self._nodes:
            raise DesignError(
                f"is {show(fault.node)}, which is no node; {nearest(fault.node, self._nodes)}",
                join(path, "node"),
            )
        node = self._nodes[fault.node]
        if fault.kind == "cold_cache" and node.plan != "cache":
            raise DesignError(f"is {show(node.id)}, but 'cold_cache' happens to a cache", join(path, "node"))
        if fault.kind == "traffic" and not node.is_source:
            raise DesignError(
                f"is {show(node.id)}, but 'traffic' happens to a traffic source", join(path, "node")
            )
        if fault.kind == "slow" and node.is_source:
            raise DesignError(
                f"is {show(node.id)}, a traffic source, which has no time of its own to slow down",
                join(path, "node"),
            )

    def _check_sizes(self, paths: Mapping[str, str]) -> None:
        """Refuses what no machine could run: too many instances, lanes or requests in all."""
        totals = {"instances": 0, "partitions": 0, "requests": 0.0}
        for index, node in enumerate(self._nodes.values()):
            values = node.effective()
            if node.is_source:
                faults = [fault for fault in self.faults if fault.node == node.id and fault.kind == "traffic"]
                totals["requests"] += expected_arrivals(values, self.duration_s, faults)
            else:
                most = values["scale_max"] if values["scale_on"] != "off" else 0
                totals["instances"] += max(values["instances"], most)
                totals["partitions"] += values.get("partitions", 0)
            for what, total in totals.items():
                if total > MOST_IN_ALL[what]:
                    during = f" in {show(self.duration_s)} s" if what == "requests" else ""
                    raise DesignError(
                        f"makes about {total:,.0f} {what}{during} of the whole design; allowed are "
                        f"{MOST_IN_ALL[what]:,.0f}",
                        _settings_path(node.id, "nodes", index, paths),
                    )


def _settings_path(id: str, part: str, index: int, paths: Mapping[str, str]) -> str:
    return paths.get(f"{id}.settings") or join(paths.get(id, f"{part}[{index}]"), "settings")


def _header(name: str, value: object) -> object:
    return HEADER[name].default if value is None else HEADER[name].check(value, name)


def _by_id(items: Iterable, part: str, most: int, paths: Mapping[str, str]) -> dict:
    items = list(items)
    if len(items) > most:
        raise DesignError(f"has {len(items):,} entries; allowed are {most:,}", part)
    found = {}
    for index, item in enumerate(items):
        if item.id in found:
            raise DesignError(_taken(item), join(paths.get(item.id, f"{part}[{index}]"), "id"))
        found[item.id] = item
    return found


def _taken(item: Node | Edge) -> str:
    if isinstance(item, Edge) and item.id == f"{item.source}->{item.target}":
        return f"is {show(item.id)}, which another edge is called already; give one of them an id of its own"
    return f"is {show(item.id)}, which is taken; ids are unique"


def _remove(ids: Sequence[str], nodes: dict[str, Node], edges: dict[str, Edge], path: str) -> set[str]:
    """Takes nodes and edges out of the two tables; the ids of all that has gone."""
    for index, id in enumerate(ids):
        if id not in nodes and id not in edges:
            raise DesignError(unknown("node or edge", id, [*nodes, *edges]), f"{path}[{index}]")
    gone = set(ids)
    gone.update([edge.id for edge in edges.values() if edge.source in gone or edge.target in gone])
    for id in gone:
        nodes.pop(id, None)
        edges.pop(id, None)
    for edge in list(edges.values()):
        if gone and edge.settings.get("fallback") in gone:
            kept = {name: value for name, value in edge.settings.items() if name != "fallback"}
            edges[edge.id] = Edge(edge.id, edge.source, edge.target, kept)
    return gone


def _reset_node(node: Node, values: Mapping[str, object], path: str) -> Node:
    """The node with some settings changed; the rules on what goes together hold for the outcome."""
    kept = {name: value for name, value in {**node.settings, **values}.items() if value is not None}
    return Node.make(node.id, node.kind, node.label, node.x, node.y, kept, settings_path=path)


def new_node(kind: str, id: str, path: str = "", **fields: object) -> Node:
    """A node of a kind of the catalogue, by the kind's id.  Raises DesignError."""
    kinds = catalogue()
    if kind not in kinds:
        raise DesignError(unknown("kind", kind, kinds), join(path, "kind"))
    return Node.make(id, kinds[kind], path=path, **fields)
