"""The house style, where a machine can check it."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SERVICE = sorted((ROOT / "service").rglob("*.py"))
EVERYTHING = sorted([*SERVICE, *(ROOT / "migrations").rglob("*.py"), *(ROOT / "tests").rglob("*.py")])
LINES_MAX, FUNCTION_MAX, PARAMETERS_MAX = 300, 40, 5
# Longer than they should be, with their lines to the number: whoever shortens one lowers it, and nothing joins them.
LONG = {
    "service/core/plan.py": 331,
}
BANNED_FILES = {"utils", "util", "helpers", "helper", "manager", "managers", "common", "misc"}
BANNED_NAMES = re.compile(r"\b(eps|Base[A-Z]\w*|\w*(Manager|Helper|Utils?))\b")
FOREIGN_NAMES = {"BaseModel", "BaseSettings", "BaseException", "AbstractContextManager", "BaseHTTPRequestHandler"}
UNFINISHED = re.compile("|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "NotImplemented" + "Error"]))


def names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def functions(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_files_stay_small_and_the_list_of_long_ones_is_exact() -> None:
    lines = {name: (ROOT / name).read_text().count("\n") for name in names(SERVICE)}
    assert {name: count for name, count in lines.items() if count > LINES_MAX} == LONG


@pytest.mark.parametrize("name", names(SERVICE))
def test_functions_stay_small(name: str) -> None:
    for function in functions(ast.parse((ROOT / name).read_text())):
        assert function.end_lineno is not None
        assert function.end_lineno - function.lineno < FUNCTION_MAX, f"{name}: {function.name} is two functions"


@pytest.mark.parametrize("name", names(SERVICE))
def test_parameters_stay_few_or_are_named(name: str) -> None:
    """Beyond five a caller must name them; self and what a route is given by the framework do not count."""
    for function in functions(ast.parse((ROOT / name).read_text())):
        given = any("router." in ast.unparse(decorator) for decorator in function.decorator_list)
        positional = [arg.arg for arg in function.args.args if arg.arg not in ("self", "cls") and not given]
        assert len(positional) <= PARAMETERS_MAX, f"{name}: {function.name}"


@pytest.mark.parametrize("name", names(SERVICE))
def test_names_say_what_things_are(name: str) -> None:
    assert Path(name).stem not in BANNED_FILES
    found = {match[0] for match in BANNED_NAMES.finditer((ROOT / name).read_text())} - FOREIGN_NAMES
    assert not found


@pytest.mark.parametrize("name", names(SERVICE))
def test_nothing_random_is_imported_and_nothing_seeded(name: str) -> None:
    for node in ast.walk(ast.parse((ROOT / name).read_text())):
        if isinstance(node, ast.Import):
            assert not any(alias.name.split(".")[0] == "random" or alias.name == "numpy.random" for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.module not in ("random", "numpy.random")
        if isinstance(node, ast.Attribute):
            assert not (node.attr == "random" and isinstance(node.value, ast.Name) and node.value.id in ("np", "numpy"))
        if isinstance(node, ast.arg):
            assert node.arg != "seed"


@pytest.mark.parametrize("name", names(EVERYTHING))
def test_nothing_is_left_for_later_and_nothing_is_skipped(name: str) -> None:
    text = (ROOT / name).read_text()
    assert not UNFINISHED.search(text)
    assert not re.search(r"pytest\.(skip|xfail)|mark\.(skip|skipif|xfail)", text)


@pytest.mark.parametrize("name", names(EVERYTHING))
def test_modules_say_what_they_are_for(name: str) -> None:
    if Path(name).name in ("__init__.py", "conftest.py"):
        return
    assert ast.get_docstring(ast.parse((ROOT / name).read_text())), f"{name} has no docstring"


def test_exact_tables_are_opened_where_they_may_be() -> None:
    """The import contract says the same; this also sees a call to the private method."""
    users = [name for name in names(SERVICE) if "ExactTable" in (ROOT / name).read_text()]
    openers = {name for name in users if re.search(r"\._open\(", (ROOT / name).read_text())}
    assert openers == {"service/core/unsealing.py"}
