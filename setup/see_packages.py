"""Let this environment see the packages of another: `python see_packages.py OTHER_PYTHON`."""

import subprocess
import sys
import sysconfig
from pathlib import Path

WHERE = "import sysconfig; print(sysconfig.get_path('purelib'))"
other = subprocess.run([sys.argv[1], "-c", WHERE], check=True, capture_output=True, text=True).stdout
Path(sysconfig.get_path("purelib"), "other.pth").write_text(other)
