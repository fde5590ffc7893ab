"""The house rules that a reader relies on: layers, names, sizes, documentation."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
import textwrap
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import qnumba

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "qnumba"
MAX_LINES = 400

# A module imports from its own line and the lines above it, never from those below.
LAYERS = (
    ("data", "devices", "errors", "formats", "memo"),
    ("fields", "fit_rules", "rules"),
    ("scheme",),
    ("blockwise", "layout", "params"),
    ("cpu", "gpu", "reference"),
    ("inputs", "validate"),
    ("calibrate", "serialize"),
    ("moves",),
    ("matmul", "order"),
    ("qarray",),
    ("quantize",),
    ("accuracy", "io", "observers", "plots", "report", "tree"),
    ("bench",),
    ("cli",),
    ("__main__",),
)
DEPTH = {name: depth for depth, names in enumerate(LAYERS) for name in names}

BACKENDS = ("reference", "cpu")
OPERATIONS = ("calibrate", "dequantize", "pack", "quantize", "unpack")

PUBLIC = {
    "DataError",
    "DecodeError",
    "Finding",
    "PRESETS",
    "QArray",
    "QParams",
    "QuantizationError",
    "QuantizedTypeError",
    "Report",
    "Scheme",
    "SchemeError",
    "UnsupportedSchemeError",
    "calibrate",
    "dequantize",
    "matmul",
    "quantize",
    "report",
    "scheme_of",
    "validate",
    "warmup",
}


def dotted(path):
    """Return the dotted name of a source file: qnumba.cpu.jit."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# The front of the house, qnumba itself, shows names of every layer and has none of its own.
FILES = {dotted(path): path for path in sorted(SOURCE.rglob("*.py")) if path.parent == SOURCE}
FILES |= {dotted(path): path for path in sorted(SOURCE.rglob("*/*.py"))}
ROOMS = {name: path for name, path in FILES.items() if name != "qnumba"}


def depth(name):
    """Return how far down a module stands: qnumba.cpu.jit stands where cpu does."""
    return DEPTH[name.split(".")[1]]


def imports(tree):
    """Return the qnumba modules that a syntax tree imports anywhere, also inside functions."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & set(FILES) or {node.module}
    return {name for name in found if name.startswith("qnumba.")}


def needed(path):
    """Return the qnumba modules that a file needs to run: all it imports but for annotations."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    return imports(tree)


def test_every_module_stands_in_a_layer():
    assert {name.split(".")[1] for name in ROOMS} <= set(DEPTH)


def test_the_map_of_the_house_shows_every_module():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", text, re.MULTILINE))))
    assert {name.split(".")[1] for name in ROOMS} <= shown


@pytest.mark.parametrize("name", ROOMS)
def test_imports_point_down(name):
    above = {other for other in needed(ROOMS[name]) if depth(other) > depth(name)}
    assert not above, f"{name} imports from above"


def test_no_import_goes_round_in_a_circle():
    TopologicalSorter({name: needed(path) for name, path in ROOMS.items()}).prepare()


@pytest.mark.parametrize("name", FILES)
def test_imports_are_absolute(name):
    tree = ast.parse(FILES[name].read_text(encoding="utf-8"))
    relative = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
    assert not relative


@pytest.mark.parametrize("path", sorted(ROOT.glob("*/**/*.py")), ids=lambda path: path.name)
def test_no_file_is_over_400_lines(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


def test_import_loads_numpy_and_nothing_else_of_weight():
    program = (
        "import json, sys, numpy; before = set(sys.modules); import qnumba;"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    roots = {name.split(".")[0] for name in json.loads(run.stdout)}
    assert roots - set(sys.stdlib_module_names) == {"qnumba"}
    assert not roots & {"asyncio", "concurrent", "http", "multiprocessing", "unittest", "xml"}


def test_public_names_are_the_list():
    assert set(qnumba.__all__) == PUBLIC
    assert set(dir(qnumba)) == PUBLIC | {"__version__"}
    for name in qnumba.__all__:
        assert getattr(qnumba, name) is not None


def operations(backend):
    """Return the signatures of a backend's operations, as text without annotations."""
    module = importlib.import_module(f"qnumba.{backend}")
    return {
        name: [
            (parameter.name, parameter.kind, parameter.default)
            for parameter in inspect.signature(getattr(module, name)).parameters.values()
        ]
        for name in OPERATIONS
    }


@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_backends_define_the_same_operations(backend):
    assert operations(backend) == operations(BACKENDS[0])


def public_callables():
    """Yield the name and object of every public function, class and method."""
    for name in qnumba.__all__:
        thing = getattr(qnumba, name)
        if callable(thing):
            yield name, thing
        for member, value in own_members(thing):
            plain = getattr(value, "__func__", value)
            if not member.startswith("_") and inspect.isfunction(plain):
                yield f"{name}.{member}", plain


def own_members(thing):
    """Return the names and values that a class has from this package, its own ones last."""
    classes = reversed(thing.__mro__) if inspect.isclass(thing) else ()
    ours = [vars(kind) for kind in classes if kind.__module__.startswith("qnumba")]
    return {name: value for members in ours for name, value in members.items()}.items()


DOCUMENTED = dict(public_callables())


@pytest.mark.parametrize("name", DOCUMENTED)
def test_public_things_are_documented(name):
    thing = DOCUMENTED[name]
    text = inspect.getdoc(thing)
    assert text, f"{name} has no docstring"
    if inspect.isclass(thing):
        return
    signature = inspect.signature(thing)
    arguments = [
        parameter for parameter in signature.parameters if parameter not in {"self", "cls"}
    ]
    sections = set(re.findall(r"^(\w+)\n-+$", text, re.MULTILINE))
    assert not arguments or "Parameters" in sections, f"{name} does not say what it takes"
    says = "Returns" in sections or (not arguments and text.startswith("Return"))
    assert signature.return_annotation in {"None", None} or says, (
        f"{name} does not say what it gives"
    )
    raises = any(isinstance(node, ast.Raise) for node in ast.walk(syntax(thing)))
    assert not raises or "Raises" in sections, f"{name} raises and does not say when"


def syntax(function):
    """Return the syntax tree of a function or method."""
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


# Machine paths, and paths that leave the repository.
ELSEWHERE = re.compile(r"(?<![\w.$}])/(?:home|mnt|opt|root|tmp|Users|work)/\w|\.\./\w")


def test_no_file_names_a_place_outside_the_project():
    suffixes = {".py", ".md", ".toml", ".yml", ".json", ".txt"}
    folders = [ROOT / name for name in ("src", "tests", "docs", "benchmarks", "examples")]
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in suffixes]
    files += [path for path in ROOT.iterdir() if path.suffix in suffixes]
    named = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in files
        for match in ELSEWHERE.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not named
