"""What callers write into an address: names and ids in paths, and the parameters that several routes share."""

from typing import Annotated, Literal

from fastapi import Path, Query

from service.catalog.declare import PlainText
from service.core.schema import NAME_PATTERN

ID = r"^[A-Za-z0-9_]{1,40}$"

DatasetName = Annotated[str, Path(pattern=f"^{NAME_PATTERN}$", max_length=63)]
TableName = Annotated[str, Path(pattern=f"^{NAME_PATTERN}$", max_length=63)]
PanelName = Annotated[str, Path(pattern=f"^{NAME_PATTERN}$", max_length=63)]
PanelDataset = Annotated[
    str | None,
    Query(
        alias="dataset",
        pattern=f"^{NAME_PATTERN}$",
        max_length=63,
        description="The panel's dataset; needed where this key reads several with a panel of that name.",
    ),
]
QueryIdParameter = Annotated[str, Path(pattern=ID)]
ImportIdParameter = Annotated[str, Path(pattern=ID)]
KeyPrefixParameter = Annotated[str, Path(pattern=r"^[a-z0-9]{1,16}$")]

AnswerForm = Annotated[Literal["json", "flat", "csv", "arrow"] | None, Query(alias="format")]
AfterEntry = Annotated[int, Query(ge=0, le=2**62)]
PageSize = Annotated[int, Query(ge=1, le=1000)]
Reason = Annotated[PlainText, Query(description="Why; kept in the journal.")]
