"""Every command of docs/dashboards.md works when pasted, against the demo service."""

import json
import os
import re
import subprocess
from pathlib import Path

from tests.fixtures.process import start

PAGE = Path(__file__).parents[2] / "docs" / "dashboards.md"
BLOCK = re.compile(r"```sh\n(.*?)```", re.S)


def commands() -> list[str]:
    """The blocks that ask the service; those about keys and PostgreSQL are for the reader's own machines."""
    return [block for block in BLOCK.findall(PAGE.read_text()) if block.startswith("curl")]


def test_the_commands_of_the_page_work(tmp_path: Path) -> None:
    running = start(tmp_path)
    try:
        keys = {"ANALYST": running.keys["analyst"], "VIEWER": running.keys["viewer"], "URL": running.url}
        said = []
        for command in commands():
            for one in re.split(r"\n(?=curl)", command.strip()):
                done = subprocess.run(["sh", "-c", one], capture_output=True, text=True, env={**os.environ, **keys})
                assert done.returncode == 0 and '"code":' not in done.stdout.replace('"state_code":', ""), done.stdout
                said.append(done.stdout)
    finally:
        running.stop()
    assert len(said) == 8
    assert json.loads(said[1])["state"] == "good"
    assert said[4].startswith("country,n,n_low_95,n_high_95")
    assert set(json.loads(said[6])["would_need"]) == {"epsilon", "rho"}
    (total,) = json.loads(said[7])["totals"]
    assert total["fits"] is True
