"""Writes what tells Python's tools that the module is installed: dist-info.py FOLDER-OF-PYPROJECT SITE-PACKAGES."""

import pathlib
import sys
import tomllib

folder, site = map(pathlib.Path, sys.argv[1:])
project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
version = tomllib.loads((folder / "Cargo.toml").read_text())["package"]["version"]
info = site / f"{project['name']}-{version}.dist-info"
info.mkdir()
lines = [
    "Metadata-Version: 2.1",
    f"Name: {project['name']}",
    f"Version: {version}",
    f"Summary: {project['description']}",
    f"License: {project['license']}",
    f"Requires-Python: {project['requires-python']}",
    *(f"Classifier: {line}" for line in project["classifiers"]),
]
(info / "METADATA").write_text("\n".join(lines) + "\n")
(info / "INSTALLER").write_text("dpkg\n")
