"""How much of a budget a profile may take. Pure; every refusal names what to change."""

from service.catalog.declare import ProfileDeclaration, TableDeclaration
from service.core.amounts import PICO, parse_share, show_pico
from service.core.errors import CatalogRefused, LossOutOfRange, NotFound

PROFILE_SHARE_MIN, PROFILE_SHARE_MAX = PICO // 10**6, PICO // 10


def profile_share(declared: TableDeclaration) -> int | None:
    """Pico of the ceiling that the table's profile may cost; None: it has none, or needs none."""
    if declared.profile is None or not declared.private:
        return None
    return _checked_share(declared.profile.share)


def profile_again_share(name: str, declared: TableDeclaration | None, share: object) -> int:
    """The same of a profile that an admin asks for; `share` None: as declared, or the default where none is."""
    if declared is None:
        raise NotFound("there is no such table", {"table": name})
    if not declared.private:
        raise CatalogRefused("a public table has no profile: its size is known exactly", {"table": name})
    return _checked_share((declared.profile or ProfileDeclaration()).share if share is None else share)


def _checked_share(share: object) -> int:
    """A profile is for sizes. One that takes much of the budget is a slip of the pen, one that takes nearly nothing
    shows nobody, and would put that in place of what is known."""
    pico = parse_share(share, "profile.share")
    if not PROFILE_SHARE_MIN <= pico <= PROFILE_SHARE_MAX:
        least, most = show_pico(PROFILE_SHARE_MIN), show_pico(PROFILE_SHARE_MAX)
        raise LossOutOfRange(f"a profile may cost {least} to {most} of the ceiling", {"field": "profile.share"})
    return pico
