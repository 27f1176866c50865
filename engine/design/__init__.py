"""What is on the canvas: designs, their files, the catalogue, checks and cost."""

from engine.design.catalogue import Kind, catalogue
from engine.design.cost import credits, node_credits, node_run_cost, run_cost
from engine.design.errors import DesignError
from engine.design.files import ProblemInfo, dumps, load, load_problem, loads, problems, save
from engine.design.lint import Finding, lint
from engine.design.model import Design, new_node
from engine.design.parts import FAULTS, METRICS, Budget, Change, Edge, Fault, Node, Objective, Problem
from engine.design.problems import attempt_on, breaches
from engine.design.settings import COMMON, EDGE, PLANS, Setting, settings_of

__all__ = [
    "COMMON",
    "EDGE",
    "FAULTS",
    "METRICS",
    "PLANS",
    "Budget",
    "Change",
    "Design",
    "DesignError",
    "Edge",
    "Fault",
    "Finding",
    "Kind",
    "Node",
    "Objective",
    "Problem",
    "ProblemInfo",
    "Setting",
    "attempt_on",
    "breaches",
    "catalogue",
    "credits",
    "dumps",
    "lint",
    "load",
    "load_problem",
    "loads",
    "new_node",
    "node_credits",
    "node_run_cost",
    "problems",
    "run_cost",
    "save",
    "settings_of",
]
