"""How torch is loaded."""

from __future__ import annotations

import subprocess
import sys


def test_the_variable_is_there_while_torch_loads_and_gone_afterwards():
    script = (
        "import importlib.abc, os, sys\n"
        "class Finder(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'torch': print(os.environ.get('OMP_WAIT_POLICY')); sys.modules['torch'] = sys\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from burnish.cli.threads import load_torch\n"
        "try: load_torch()\n"
        "except ImportError: pass\n"
        "print(os.environ.get('OMP_WAIT_POLICY'))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split()[0] == "PASSIVE", done.stderr
    assert done.stdout.split()[-1] == "None"
