"""The map of the house is true: docs/architecture.md, docs/glossary.md, and every file that a docstring names."""

import ast
import re
import tomllib
from collections import Counter, defaultdict

import pytest

from tests.fixtures.source import ROOT, defined, imports, service

ARCHITECTURE = (ROOT / "docs/architecture.md").read_text()
GLOSSARY = (ROOT / "docs/glossary.md").read_text()
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]

HOP = re.compile(r"^\d+\. `(service/[\w/]+\.py)`((?: `[\w.]+`,?)+): .+\.(?:\*\*)?$")
TERM = re.compile(r"^\| ([^|`]+) \| (service/[\w/]+\.py) \| ([^|]+\.) \|$")
PATH = re.compile(r"(?<![\w/.-])(?:service|tests|docs|migrations|benchmarks)/[\w/*.-]*\w")

BARE = re.compile(r"(?<![\w/.*-])(\w+\.py)\b")

CONSOLE = {"service.console"}  # a package of files that are no modules
# Words that name modules and mean what they mean everywhere.
PLAIN = set(
    re.findall(
        r"\w+",
        """
        admin administration amounts app apply arguments arithmetic auth base bodies body build cache casts
        check cli client clock codec command compiler conditions console count counting counts database dates
        defaults demo derive describe disjoint distinct docs duckdb emit envelope errors exact examples
        exponential expr expressions facts fair file folders formats from function health histograms history ids
        inspecting integers intervals json limits literals logs main messages metrics middleware migrate no
        numbers openapi operations over parameters parse per poll pool predict privacy problems quantile queue
        quoting ranges read reading reconciling rendered renyi reports request requests responses reuse routes
        run sampling schema seccomp select service serving settings smartnoise spellings split syscalls terminal
        time totals traces translate understand unions validation verifying words worse written
        """,
    )
)


def hops() -> list[str]:
    return [line for line in ARCHITECTURE.splitlines() if re.match(r"\d+\. ", line)]


def terms() -> list[tuple[str, str, str]]:
    """(word, file, sentence), a line of several words taken apart."""
    rows = [TERM.match(line) for line in GLOSSARY.splitlines() if line.startswith("| ")]
    found = [row.groups() for row in rows if row is not None]
    return [(word, file, sentence) for words, file, sentence in found for word in words.split(", ")]


# --- architecture ------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", hops())
def test_every_hop_names_a_file_and_what_it_does_there(line: str) -> None:
    match = HOP.match(line)
    assert match is not None, "a hop reads: 1. `file` `function`: sentence."
    tree = ast.parse((ROOT / match[1]).read_text())
    known = dict(defined(tree.body))
    for name in re.findall(r"`([\w.]+)`", match[2]):
        owner, _, method = name.partition(".")
        assert owner in known, f"{match[1]} has no {owner}"
        node = known[owner]
        if method:
            assert isinstance(node, ast.ClassDef)
            assert method in dict(defined(node.body)), f"{owner} has no {method}"


def test_the_walks_are_numbered_without_gaps() -> None:
    at = 0
    for line in hops():
        number = int(line.split(".")[0])
        assert number in (at + 1, 1), line
        at = number


def test_every_package_is_on_the_page_in_the_words_of_its_docstring() -> None:
    rows = dict(re.findall(r"^\| (service/\S+) \| (.+) \|$", ARCHITECTURE, re.M))
    known = service()
    rooms = {name for name in known if name != "service" and any(other.startswith(f"{name}.") for other in known)}
    alone = {name for name in known if name.count(".") == 1} - rooms - {"service.__main__"} - CONSOLE
    expected = {
        name.replace(".", "/") + (".py" if name in alone else ""): (
            ast.get_docstring(known[name].tree) or ""
        ).splitlines()[0]
        for name in rooms | alone | {"service.console"}
    }
    assert rows == expected


def test_the_layers_are_those_of_the_import_contract() -> None:
    [contract] = [part for part in CONTRACTS if part.get("containers") == ["service"]]
    [block] = re.findall(r"^```\n(.*?)\n```", ARCHITECTURE, re.M | re.S)
    assert block.splitlines() == [layer for layer in contract["layers"] if layer != "__main__"]


# --- glossary ----------------------------------------------------------------------------------------


def test_every_line_of_the_glossary_is_a_word_a_file_and_a_sentence() -> None:
    lines = [line for line in GLOSSARY.splitlines() if line.startswith("| ") and not line.startswith("| word |")]
    assert [line for line in lines if TERM.match(line) is None] == []


def test_no_word_is_explained_twice() -> None:
    counts = Counter(word for word, _, _ in terms())
    assert [word for word, count in counts.items() if count > 1] == []


@pytest.mark.parametrize(("word", "file"), [(word, file) for word, file, _ in terms()])
def test_a_word_lives_where_the_glossary_says(word: str, file: str) -> None:
    assert stems(word) <= stems(file) | stems((ROOT / file).read_text())


def test_types_that_cross_the_house_are_explained() -> None:
    """A class that more than two other packages import; failures are in docs/api.md, by their codes."""
    known = service()
    homes = {
        (module.name, name): module.package
        for module in known.values()
        for name, node in defined(module.tree.body)
        if isinstance(node, ast.ClassDef) and module.name != "service.core.errors"
    }
    users = defaultdict(set)
    for module in known.values():
        for source, name, _ in imports(module, known):
            if (source, name or "") in homes and module.package != homes[source, name or ""]:
                users[name].add(module.package)
    crossing = {name for name, packages in users.items() if len(packages) > 2}
    assert {name for name in crossing if f"`{name}`" not in GLOSSARY} == set()


def test_types_named_in_the_glossary_are_defined_where_it_says() -> None:
    for _, file, sentence in terms():
        for name in re.findall(r"`(\w+)`", sentence):
            assert re.search(rf"^(class )?{name}\b", (ROOT / file).read_text(), re.M), f"{file} has no {name}"


def test_words_that_name_modules_are_explained_or_plain() -> None:
    """A new module brings a new word: explain it, or say that it needs no explaining."""
    named = {word for name in service() for word in re.findall("[a-z]+", name.rpartition(".")[2].replace("__", ""))}
    explained = {each for word, _, _ in terms() for each in stems(word)}
    assert {word for word in named if stem(word) not in explained} == PLAIN


def stems(text: str) -> set[str]:
    """Lower-case words without endings, so that holds, hold and Hold are one."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).replace("_", " ").lower()
    return {stem(word) for word in re.findall(r"[a-z0-9]+", spaced)}


def stem(word: str) -> str:
    for ending in ("ies", "ing", "ed", "es", "s", "e", "y"):
        if len(word) > len(ending) + 2 and word.endswith(ending) and not word.endswith("ss"):
            return word[: -len(ending)]
    return word


# --- files that are named ------------------------------------------------------------------------------

NAMING = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("service/**/*.py", "tests/**/*.py", "docs/*.md", "*.md", "Makefile")
    for path in ROOT.glob(pattern)
    if path.name != "CHANGELOG.md"  # what was is written with the names it had
)


@pytest.mark.parametrize("name", NAMING)
def test_files_that_are_named_exist(name: str) -> None:
    """`Checked by` of a mechanism, a file in a docstring or on a page. A decision's number stands for its record."""
    for path in PATH.findall((ROOT / name).read_text()):
        assert list(ROOT.glob(f"{path}*" if "decisions/0" in path else path)), f"{name} names {path}"


def test_files_that_are_named_without_their_folder_exist() -> None:
    """`moments.py` beside others in a docstring: a module of the service of that name."""
    files = {
        path.name for pattern in ("service/**/*.py", "tests/**/*.py", "benchmarks/*.py") for path in ROOT.glob(pattern)
    }
    for name in NAMING:
        if name.startswith(("service/", "docs/")):
            for found in BARE.findall((ROOT / name).read_text()):
                assert found in files, f"{name} names {found}"


def test_every_argument_says_what_checks_it() -> None:
    for module in service().values():
        for node in ast.walk(module.tree):
            text = ast.get_docstring(node) if isinstance(node, ast.ClassDef | ast.FunctionDef) else None
            if text is not None and re.search(r"^Guarantee +\S", text, re.M):
                assert re.search(r"^Checked by +tests/", text, re.M), f"{module.name}: {getattr(node, 'name', '')}"
