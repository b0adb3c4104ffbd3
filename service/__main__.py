"""`python -m service` is the `halftone` command."""

import sys

from service.cli import main

sys.exit(main())
