"""Container files, as far as they can be checked without a container."""

import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.settings import Settings

ROOT = Path(__file__).parent.parent
SETTINGS = {f"HALFTONE_{name.upper()}" for name in Settings.model_fields}
DOCKERFILE = (ROOT / "Dockerfile").read_text()


@pytest.fixture
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return found


def test_every_setting_in_the_container_files_exists() -> None:
    named = set(re.findall(r"HALFTONE_[A-Z_]+", DOCKERFILE + (ROOT / "docker-compose.yml").read_text()))
    assert named
    assert named <= SETTINGS


def test_the_image_gets_only_what_is_let_through_and_exists() -> None:
    let_through = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [name for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.M) for name in line.split()[:-1]]
    assert copied
    for name in copied:
        assert (ROOT / name).exists()
        assert any(fnmatch(name, pattern) for pattern in let_through), f"{name} is ignored"


def test_the_image_does_not_run_as_root_and_installs_by_hash() -> None:
    final = DOCKERFILE.split("FROM ")[-1]
    assert re.search(r"^USER (?!root)\w+$", final, re.M)
    assert "--require-hashes" in DOCKERFILE
    assert "pip install" not in final


def test_the_composition_names_volumes_that_it_declares_and_no_password(compose: dict[str, Any]) -> None:
    declared = set(compose["volumes"])
    used = {
        volume.split(":")[0]
        for service in compose["services"].values()
        for volume in service["volumes"]
        if not volume.startswith(".")
    }
    assert used == declared
    assert "${POSTGRES_PASSWORD:?" in compose["services"]["postgres"]["environment"]["POSTGRES_PASSWORD"]
    assert all(port.startswith("127.0.0.1:") for port in compose["services"]["service"]["ports"])
    waits = compose["services"]["service"]["depends_on"]["postgres"]["condition"]
    assert waits == "service_healthy"
    assert "healthcheck" in compose["services"]["postgres"]


def pinned(name: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9][\w.-]*==\S+)", (ROOT / name).read_text(), re.M))


def test_the_image_holds_the_versions_that_are_tested_and_no_address_of_an_index() -> None:
    assert pinned("requirements.run.lock")
    assert pinned("requirements.run.lock") <= pinned("requirements.lock")
    for name in ("requirements.lock", "requirements.run.lock"):
        assert not re.search(r"https?://|--index|--find-links|file:", (ROOT / name).read_text())
