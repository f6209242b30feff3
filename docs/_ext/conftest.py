"""What the site is built with can be tested where Sphinx is."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("sphinx") else ["*.py"]
