"""Bytewax's own environment, made when it is first needed: its pins need not agree with Tidewheel's."""

import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("bytewax-requirements.txt")


def python(root: Path) -> Path:
    """The Python of `.venv-bytewax`, with what the flow needs installed."""
    folder = root / ".venv-bytewax"
    ready = folder / ".ready"
    interpreter = folder / "bin" / "python"
    if not ready.exists() or ready.read_text() != REQUIREMENTS.read_text():
        print("installing Bytewax into .venv-bytewax (once)", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", str(REQUIREMENTS)], check=True)
        ready.write_text(REQUIREMENTS.read_text())
    return interpreter
