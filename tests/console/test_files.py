"""The console without a browser: what it calls, what it may not contain, how it is served and packaged."""

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.console import FILES, PAGE
from tests.fixtures.service import House, open_house

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "service" / "console"
SCRIPTS = sorted(name for name in FILES if name.endswith(".js"))
LINES_MAX = 350
CALL = re.compile(r"""\bcall\("(?P<method>[A-Z]+)", (?:at`|")(?P<path>/[^`"?]*)""")
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|\bFunction\(|setTimeout\(\s*[\"'`]"
    r"|createContextualFragment|DOMParser|srcdoc|javascript:|localStorage|indexedDB|document\.cookie|\bimport\("
)
OTHER_WAYS_OUT = re.compile(r"\bfetch\(|XMLHttpRequest|EventSource|WebSocket|sendBeacon|importScripts|window\.open")
REMOTE = re.compile(r"""(?:https?:)?//[\w-]+\.|url\(|@import|src\s*=\s*["'](?!/console/)""")
ADDRESSES = ["/", "/console", "/console/", *(f"/console/{name}" for name in FILES if name != PAGE)]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    opened = open_house(tmp_path_factory.mktemp("console"), requests_per_minute=1_000_000)
    yield opened
    opened.close()


def text(name: str) -> str:
    return (FOLDER / name).read_text()


def calls() -> set[tuple[str, str]]:
    found = set()
    for name in SCRIPTS:
        for call in CALL.finditer(text(name)):
            found.add((call["method"], re.sub(r"\$\{\w+\}", "{}", call["path"])))
    return found


def test_the_console_calls_only_documented_endpoints(house: House) -> None:
    """The console has no private door: whatever it shows, an API client could have had."""
    documented = {
        (method.upper(), re.sub(r"\{\w+\}", "{}", path))
        for path, operations in house.app.openapi()["paths"].items()
        for method in operations
    }
    assert len(calls()) > 15, "few calls found: has the console changed how it fetches?"
    assert calls() <= documented


def test_every_call_is_one_that_the_check_above_can_read() -> None:
    """A call in another form would go unseen, and so would any other way to reach the network."""
    for name in SCRIPTS:
        script = text(name)
        if name != "api.js":
            assert not OTHER_WAYS_OUT.search(script), name
            assert len(re.findall(r"\bcall\(", script)) == len(CALL.findall(script)), name
    assert len(re.findall(r"\bfetch\(", text("api.js"))) == 1


def test_names_are_put_into_paths_in_one_safe_way() -> None:
    """Every path with a name in it is built by at`…`, which encodes it."""
    for name in SCRIPTS:
        for place in re.finditer(r"(at)?`/v1[^`]*\$\{", text(name)):
            assert place[1] == "at", f"{name}: {place[0]}"


@pytest.mark.parametrize("name", sorted(FILES))
def test_nothing_is_read_as_markup_or_code_and_nothing_comes_from_elsewhere(name: str) -> None:
    content = text(name)
    assert not FORBIDDEN.search(content)
    assert not REMOTE.search(content.replace("http://www.w3.org/2000/svg", ""))
    assert content.count("\n") <= LINES_MAX


def test_the_page_has_no_inline_script_style_or_handler() -> None:
    page = text(PAGE)
    assert not re.search(r"\son\w+\s*=|\sstyle\s*=|<style|<base|<iframe|<object", page)
    assert not re.search(r"<script(?![^>]*\ssrc=\"/console/)", page)
    for script in SCRIPTS:
        assert not re.search(r"setAttribute\(\s*[\"'](on|style)|\bstyle:|\.style\b", text(script)), script


def test_every_field_of_the_page_has_a_label_and_every_id_is_there_once() -> None:
    page = text(PAGE)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    labelled = set(re.findall(r'<label[^>]* for="([^"]+)"', page))
    fields = {re.search(r'\bid="([^"]+)"', tag) for tag in re.findall(r"<(?:input|select|textarea)[^>]*>", page)}
    assert {field[1] for field in fields if field is not None} == labelled
    for name in SCRIPTS:
        assert set(re.findall(r'\bbyId\("([^"]+)"\)', text(name))) <= set(ids), name


def luminance(colour: str) -> float:
    """As WCAG defines it, of #rrggbb."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_stands_out_from_its_ground(theme: int) -> None:
    """4.5 to 1, the figure of WCAG AA for text of ordinary size, in both themes."""
    colours = dict(
        re.findall(r"--([\w-]+): (#[0-9a-f]{6});", text("console.css").split("prefers-color-scheme: dark")[theme])
    )
    pairs = [(ink, ground) for ink in ("ink", "soft", "accent") for ground in ("ground", "sheet")]
    pairs += [
        ("ink", "code"),
        ("warn", "sheet"),
        ("ink", "warn-ground"),
        ("good", "good-ground"),
        ("ink", "good-ground"),
    ]
    for ink, ground in [*pairs, ("accent-ink", "accent")]:
        darker, lighter = sorted((luminance(colours[ink]), luminance(colours[ground])))
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, f"{ink} on {ground}"


def test_the_key_is_kept_in_the_tab_and_nowhere_else() -> None:
    """Only api.js reads it, and only to send it as Authorization."""
    for name in SCRIPTS:
        if name != "api.js":
            assert "halftone.key" not in text(name)
    assert text("api.js").count("getItem(KEY)") == 3
    assert "Authorization: `Bearer ${sessionStorage.getItem(KEY)" in text("api.js")


def test_the_list_names_every_file_of_the_folder() -> None:
    there = {path.name for path in FOLDER.iterdir() if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert there == set(FILES)
    imported = {name for script in SCRIPTS for name in re.findall(r'from "\./([^"]+)"', text(script))}
    assert imported | {"console.js"} == set(SCRIPTS)


@pytest.mark.parametrize("address", ADDRESSES)
def test_every_file_is_served_without_a_key_under_a_strict_policy(house: House, address: str) -> None:
    answer = house.client.get(address)
    name = PAGE if address in ("/", "/console", "/console/") else address.removeprefix("/console/")
    assert answer.status_code == 200
    assert answer.content == (FOLDER / name).read_bytes()
    assert answer.headers["content-type"] == FILES[name]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "connect-src": "'self'",
        "img-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }


def test_a_file_that_has_not_changed_is_not_sent_again(house: House) -> None:
    first = house.client.get("/console/api.js")
    again = house.client.get("/console/api.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert again.headers["cache-control"] == "no-cache"
    other = house.client.get("/console/dom.js", headers={"If-None-Match": first.headers["etag"]})
    assert other.status_code == 200


@pytest.mark.parametrize(
    "address",
    [
        "/console/nothing.js",
        "/console/__init__.py",
        "/console/../app.py",
        "/console/%2e%2e%2fapp.py",
        "/console/api.js/",
    ],
)
def test_other_names_are_nothing_here(house: House, address: str) -> None:
    answer = house.client.get(address)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "not-found"


def test_the_console_can_be_left_out(tmp_path: Path) -> None:
    plain = open_house(tmp_path, console=False)
    try:
        assert [plain.client.get(address).status_code for address in ("/", "/console/api.js")] == [404, 404]
    finally:
        plain.close()


def test_the_wheel_holds_every_file(tmp_path: Path) -> None:
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in ("service", "migrations"):
        shutil.copytree(ROOT / folder, source / folder, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        held = {name.removeprefix("service/console/") for name in packed.namelist() if "/console/" in name}
    assert set(FILES) <= held
