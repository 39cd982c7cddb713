"""The environment of a peer, created at its first use: its pins may conflict with those of Tidewheel."""

import subprocess
import sys
from pathlib import Path


def python(root: Path, peer: str) -> Path:
    """Return the Python of `.venv-PEER`, with the packages of PEER-requirements.txt."""
    requirements = Path(__file__).with_name(f"{peer}-requirements.txt")
    folder = root / f".venv-{peer}"
    ready = folder / ".ready"
    interpreter = folder / "bin" / "python"
    if not ready.exists() or ready.read_text() != requirements.read_text():
        print(f"installing {peer} into {folder.name} (once)", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", str(requirements)], check=True)
        ready.write_text(requirements.read_text())
    return interpreter
