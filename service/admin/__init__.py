"""What admins do, over all packages: the catalog's change, the ledger's entry and the import belong together."""

from service.admin.acts import COMMAND_LINE, AdministrationTools
from service.admin.administration import Administration

__all__ = ["COMMAND_LINE", "Administration", "AdministrationTools"]
