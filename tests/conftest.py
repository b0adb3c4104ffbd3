"""One profile for all property tests: a shared machine has no say in what holds. Journeys need a browser."""

from typing import Any

from hypothesis import settings

from tests.fixtures.browser import HAS_BROWSER

settings.register_profile("halftone", deadline=None, print_blob=True)
settings.load_profile("halftone")

collect_ignore = [] if HAS_BROWSER else ["console/test_journeys.py"]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say it where everybody looks: a suite without a browser has left something out."""
    if not HAS_BROWSER:
        terminalreporter.write_line(
            "LEFT OUT: tests/console/test_journeys.py; it needs chromium and chromedriver on the path."
        )
