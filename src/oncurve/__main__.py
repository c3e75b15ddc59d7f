"""`python -m oncurve` is `oncurve`."""

import sys

from oncurve.cli.main import main

sys.exit(main())
