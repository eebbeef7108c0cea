"""Checks the product's code: no import cycle between files, no function above a complexity of 20, no vague name, one log format.

python -m tests.tools.code_rules    # prints each violation, and exits with 1 if there is one
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("shared", "services", "pipelines", "client/eyas_client")
MOST_COMPLEX = 20
BRANCHES = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.IfExp, ast.Assert, ast.comprehension, ast.match_case)
VAGUE = re.compile("one|found|told|given|held|kept|asked|laid|seen|taken|said|its|mine|here|these|those|whole|what|known|stood|stands|lies")
LOG_METHODS = {"debug": 0, "info": 0, "warning": 0, "error": 0, "exception": 0, "critical": 0, "log": 1, "fail": 1, "succeed": 1}
"""Position of the message among the arguments; `fail` and `succeed` are those of Outages."""
LOG_FORMAT = re.compile(r"([a-z][A-Za-z0-9 _-]*|%s): [^%=]+( [a-z_][a-z0-9_@]*=%\S+)*( %s)?")
FIXED = {
    ("services/api/overview.py", "said"), ("services/api/retraining.py", "said"), ("services/api/retraining.py", "held"),
    ("services/api/retraining.py", "stands"), ("services/api/rollout_views.py", "asked"), ("services/api/serving.py", "whole"),
    ("services/api/triggers.py", "found"), ("services/api/views.py", "asked"), ("shared/contracts/datatools.py", "found"),
    ("shared/contracts/features.py", "what"), ("shared/contracts/refit.py", "held"), ("shared/contracts/serving.py", "seen"),
    ("shared/contracts/validation_report.py", "kept"), ("shared/domain/drift/alarm_decision.py", "stands"),
    ("shared/domain/triggers.py", "said"), ("shared/domain/triggers.py", "held"),
}  # fmt: skip
"""Fields, by file, whose names the API or a file format fixes."""


def violations(root: Path) -> Iterator[str]:
    files = sorted(path.relative_to(root) for package in PACKAGES for path in (root / package).rglob("*.py"))
    trees = {file: ast.parse((root / file).read_text()) for file in files}
    yield from cycles(trees)
    for file, tree in trees.items():
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        fields = [child.target for node in classes for child in node.body if isinstance(child, ast.AnnAssign)]
        fixed = {field for field in fields if (file.as_posix(), ast.unparse(field)) in FIXED}
        if VAGUE.fullmatch(file.parent.name if file.name == "__init__.py" else file.stem):
            yield f"{file}: vague name of a module"
        for node in ast.walk(tree):
            if VAGUE.fullmatch(defined_name(node)) and node not in fixed:
                yield f"{file}:{node.lineno}: vague name: {defined_name(node)}"  # type: ignore[attr-defined]
            if isinstance(node, ast.Call) and file.name != "outages.py" and not LOG_FORMAT.fullmatch(log_message(node)):
                yield f"{file}:{node.lineno}: log line without the form 'noun: what happened key=value'"
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (count := complexity(node)) > MOST_COMPLEX:
                yield f"{file}:{node.lineno}: {node.name} has a complexity of {count}, above {MOST_COMPLEX}: split it"


def cycles(trees: Mapping[Path, ast.Module]) -> Iterator[str]:
    modules = {".".join(file.with_suffix("").parts).removesuffix(".__init__").removeprefix("client."): file for file in trees}
    graph = {module: imports(trees[file], module, modules) - {module} for module, file in modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield f"import cycle: {' imports '.join(reversed(error.args[1]))}"


def imports(tree: ast.Module, module: str, modules: Mapping[str, Path]) -> set[str]:
    """Of the project's modules, those that it imports, inside functions too."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = module if modules[module].name == "__init__.py" else module.rpartition(".")[0]
            source = resolve_name("." * node.level + (node.module or ""), package)
            names |= {f"{source}.{alias.name}" if f"{source}.{alias.name}" in modules else source for alias in node.names}
    return names & modules.keys()


def complexity(function: ast.AST) -> int:
    nodes = list(ast.walk(function))
    operands = sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    return 1 + sum(isinstance(node, BRANCHES) for node in nodes) + operands


def log_message(call: ast.Call) -> str:
    """Returns the format of a log line; a valid one if the call logs nothing."""
    match call.func:
        case ast.Attribute(value=ast.Name(id=owner) | ast.Attribute(attr=owner), attr=method) if method in LOG_METHODS:
            logs = owner.strip("_") in ("log", "logger") or (method in ("fail", "succeed") and "outage" in owner)
            position = LOG_METHODS[method]
            if logs and len(call.args) > position:
                message = call.args[position]
                return message.value if isinstance(message, ast.Constant) and isinstance(message.value, str) else ""
    return "log: none"


def defined_name(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            return name
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name.strip("_").lower()
    return ""


if __name__ == "__main__":
    faults = list(violations(ROOT))
    sys.stdout.write("".join(f"{fault}\n" for fault in faults))
    sys.exit(bool(faults))
