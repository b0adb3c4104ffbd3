"""Settings: read once, and unsafe ones refused with what to change."""

from pathlib import Path

import pytest

from service.settings import Settings, SettingsRefused, read_settings


def test_everything_has_a_default_for_one_machine() -> None:
    settings = Settings()
    assert settings.is_loopback
    assert settings.store_url.startswith("sqlite:///")
    assert settings.source_folders == (Path("data/sources"),)
    assert settings.cors_origins == ()


def test_the_environment_is_read_with_its_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALFTONE_PORT", "9001")
    monkeypatch.setenv("HALFTONE_SOURCES", "/a:/b")
    monkeypatch.setenv("HALFTONE_CORS_ORIGINS", "https://a.example, https://b.example")
    settings = read_settings()
    assert (settings.port, settings.sources) == (9001, (Path("/a"), Path("/b")))
    assert settings.cors_origins == ("https://a.example", "https://b.example")
    assert read_settings(port=9002).port == 9002


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "0"),
        ("PORT", "http"),
        ("LEDGER_URL", "mysql://x"),
        ("ENGINE_MEMORY", "lots"),
        ("CORS_ORIGINS", "*"),
        ("CORS_ORIGINS", "https://a.example/path"),
        ("TIME_STEP_MS", "-1"),
        ("LOG_LEVEL", "loud"),
        ("BODY_BYTES_MAX", "1"),
        ("PUBLISH_URL", "sqlite:///x"),
    ],
)
def test_an_unsafe_value_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"HALFTONE_{name}", value)
    with pytest.raises(SettingsRefused, match=f"HALFTONE_{name}: .+"):
        read_settings()


@pytest.mark.parametrize(("host", "loopback"), [("127.0.0.1", True), ("::1", True), ("0.0.0.0", False), ("box", False)])
def test_an_address_that_others_reach_is_known_as_such(host: str, loopback: bool) -> None:
    assert Settings(host=host).is_loopback is loopback


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().port = 1  # type: ignore[misc]
