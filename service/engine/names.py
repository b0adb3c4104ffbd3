"""Names and literals in SQL text. Everything that goes between quotes goes through here."""


def quoted(name: str) -> str:
    """An identifier."""
    assert "\0" not in name
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """A string literal."""
    assert "\0" not in value
    return "'" + value.replace("'", "''") + "'"
