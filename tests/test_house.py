"""The rules that keep the house in order: imports, the compiled core, sizes, exports, docs and packaging."""

from __future__ import annotations

import ast
import hashlib
import importlib
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from baselines import BASELINES
from docs import generate

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = ("traces", "envs", "baselines", "agents", "benchmarks", "docs")
COMMANDS = ("train", "evaluate")

# Data flows traces -> envs -> baselines | agents -> commands: what each part may import of ours, apart from itself.
MAY_IMPORT: dict[str, set[str]] = {
    "traces": set(),
    "envs": {"traces"},
    "baselines": {"traces", "envs"},
    "agents": {"traces", "envs"},
    "train": {"traces", "envs", "baselines", "agents"},
    "evaluate": {"traces", "envs", "baselines", "agents"},
    "benchmarks": {"traces", "envs", "baselines", "agents", *COMMANDS},
    "docs": {"traces", "envs", "baselines", "agents", *COMMANDS},
}
# The faces of envs that a scheduler may use; the compiled core is not among them.
FACES_FOR_BASELINES = {
    "envs.jit",
    "envs.knapsack",
    "envs.layout",
    "envs.order",
    "envs.rng",
    "envs.scheduler",
    "envs.spec",
    "envs.straggler_presets",
    "envs.view",
}

MAX_FILE, MAX_FUNCTION = 400, 60  # lines
NUMPY_IN_CORE = {"inf", "nan", "int64", "uint64", "float64", "float32"}

FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
FILES += [path for path in (ROOT / f"{name}.py" for name in COMMANDS) if path.exists()]
TREES = {path: ast.parse(path.read_text()) for path in FILES}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports(tree: ast.Module) -> set[str]:
    """Dotted names of every module that a file imports, in functions and type-checking blocks too."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the direction of a dependency"
            assert node.module is not None
            found.add(node.module)
    return found


def compiled_functions(tree: ast.Module) -> list[ast.FunctionDef]:
    """Functions with a decorator ``@jit`` or ``@jit(...)``."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(d) for d in node.decorator_list)
    ]


CORE = [path for path, tree in TREES.items() if compiled_functions(tree)]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_dependencies_point_one_way(path):
    part = path.relative_to(ROOT).parts[0].removesuffix(".py")
    used = {name.split(".")[0] for name in imports(TREES[path])} & set(MAY_IMPORT)
    assert used - {part} <= MAY_IMPORT[part]


@pytest.mark.parametrize("path", sorted((ROOT / "baselines").glob("*.py")), ids=name_of)
def test_baselines_see_the_view_and_never_the_core(path):
    assert {name for name in imports(TREES[path]) if name.split(".")[0] == "envs"} <= FACES_FOR_BASELINES


def test_only_the_core_and_searches_of_schedulers_are_compiled():
    burn_in = ROOT / "docs" / "straggler_burn_in.py"  # reads the record as the core does
    assert {path.parent.name for path in CORE if path != burn_in} == {"envs", "baselines"}


@pytest.mark.parametrize("path", CORE, ids=name_of)
def test_compiled_functions_use_math_not_numpy(path):
    """np.exp and its kin differ in the last bit between compiled and interpreted runs; arrays are never allocated."""
    for function in compiled_functions(TREES[path]):
        used = {
            node.attr
            for node in ast.walk(function)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("np", "numpy")
        }
        assert used <= NUMPY_IN_CORE, function.name


@pytest.mark.parametrize("path", CORE, ids=name_of)
def test_compiled_functions_raise_nothing(path):
    """Exceptions are unusable in parallel loops: errors go to ``s.status``."""
    for function in compiled_functions(TREES[path]):
        assert not any(isinstance(node, ast.Raise | ast.Try | ast.Assert) for node in ast.walk(function)), function.name


@pytest.mark.parametrize("path", CORE, ids=name_of)
def test_progress_is_never_accumulated(path):
    """``done`` is rewritten from its anchor, so that one advance(600) equals ten advance(60) bit for bit."""
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript | ast.Attribute):
            assert not ast.unparse(node.target).startswith(("s.done", "s.finish")), f"line {node.lineno}"


def test_parallel_loops_are_in_one_file():
    calls = [
        name_of(path)
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "prange"
    ]
    assert set(calls) == {"envs/batch.py"}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_files_and_functions_stay_short(path):
    assert len(path.read_text().splitlines()) <= MAX_FILE
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno + 1 <= MAX_FUNCTION, node.name


@pytest.mark.parametrize("path", [p for p, t in TREES.items() if "__all__" in ast.dump(t)], ids=name_of)
def test_exported_names_exist_once(path):
    """Their order is ruff's business (RUF022)."""
    name = name_of(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    module = importlib.import_module(name)
    assert len(set(module.__all__)) == len(module.__all__)
    assert all(hasattr(module, exported) for exported in module.__all__)


def test_generated_tables_are_fresh():
    assert [name_of(page) for page in generate.stale()] == []


def test_every_generated_table_has_a_place():
    pages = "".join(page.read_text() for page in generate.pages())
    assert [name for name in generate.TABLES if f"<!-- begin: {name} -->" not in pages] == []


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_is_documented(name):
    assert f"| `{name}` |" in (ROOT / "docs" / "schedulers.md").read_text()
    assert BASELINES[name].__doc__
    assert sys.modules[BASELINES[name].__module__].__doc__


def test_packages_are_listed():
    found = {name_of(path.parent).replace("/", ".") for path in FILES if path.name == "__init__.py"}
    assert set(PYPROJECT["tool"]["setuptools"]["packages"]) == found
    top = {path.stem for path in ROOT.glob("*.py")} - {"setup"}
    assert set(PYPROJECT["tool"]["setuptools"]["py-modules"]) == top


def test_types_are_relaxed_for_the_core_only():
    """numba infers the types of compiled functions; every other module of ours is checked strictly."""
    relaxed = next(o for o in PYPROJECT["tool"]["mypy"]["overrides"] if "envs.dynamics" in o["module"])
    assert set(relaxed["module"]) <= {f"envs.{path.stem}" for path in CORE}


def test_no_measured_data_is_copied(shared):
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    ours = {hashlib.sha256((ROOT / name).read_bytes()).hexdigest(): name for name in tracked.stdout.split("\0") if name}
    theirs = {
        hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in ("data", "reference")
        for path in (shared / folder).rglob("*")
        if path.is_file() and path.stat().st_size > 0
    }
    assert [ours[digest] for digest in ours.keys() & theirs] == []


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder like site-packages, with what ``pip install`` would put there."""
    source, site = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", *(path.name for path in ROOT.glob("*.py"))):
        shutil.copy(ROOT / name, source)
    for package in PYPROJECT["tool"]["setuptools"]["packages"]:
        if "." not in package:  # what is inside a package comes with it
            shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        source,
    ]
    subprocess.run([*build, source], check=True)
    with zipfile.ZipFile(next(source.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    return site


def test_the_wheel_has_every_file(installed):
    wanted = {name for name in map(name_of, FILES) if not name.startswith("docs/")} | {"gymnasium_musher.pth"}
    wanted |= {name_of(path) for path in (ROOT / "agents").rglob("*.safetensors")}
    assert {name for name in wanted if not (installed / name).exists()} == set()


def test_gymnasium_knows_the_environment_in_any_process(installed, tmp_path):
    (tmp_path / "envs.py").write_text("mine = True")  # a package of the user's with the same name
    script = f"import site; site.addsitedir({str(installed)!r}); import gymnasium, envs; assert envs.mine; "
    script += "print([name for name in gymnasium.registry if name.startswith('musher/')])"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['musher/Cluster-v0']"
    assert done.stderr == ""


def test_the_entry_point_leads_to_the_same_function():
    module, _, function = PYPROJECT["project"]["entry-points"]["gymnasium.envs"]["__root__"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))
