"""What docs/compatibility.md promises of texts, against the releases before: members of D-Bus and keys of JSON stay, an error code that went is
not used again. Codes whose message changed are printed: whether the meaning is the same has to be read.

    python3 .ci/kept.py TAG
"""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as tree


def git(*words):
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout


def text(version, file):
    """A file at a tag, or of the working tree; nothing where it is not there."""
    try:
        return git("show", f"{version}:{file}") if version else open(file, encoding="utf-8").read()
    except (subprocess.CalledProcessError, FileNotFoundError):
        return ""


def members(xml):
    """Methods, signals and properties with their types."""
    # A comment may have had what XML does not allow there.
    xml = re.sub(r"<!--.*?-->", "", xml, flags=re.S)
    for one in tree.fromstring(xml).iter() if xml else ():
        if one.tag in ("method", "signal", "property"):
            arguments = [f"{arg.get('direction', 'out')} {arg.get('type')}" for arg in one.iter("arg")]
            yield f"{one.tag} {one.get('name')} ({', '.join(arguments) or one.get('type', '')})"


def keys(schema, at=""):
    """Each key that an object of a schema may have, with its place."""
    inner = schema.items() if isinstance(schema, dict) else enumerate(schema) if isinstance(schema, list) else ()
    for word, value in inner:
        if word == "properties":
            yield from (f"{at}/{name}" for name in value)
        # Of what is one of several the place in the list says nothing.
        yield from keys(value, at if isinstance(word, int) else f"{at}/{word}")


def codes(version):
    return dict(re.findall(r"^\| `(LS\d{4})` \| (.*?) \|", text(version, "docs/ERRORS.md"), re.M))


last, wrong = sys.argv[1], []
for folder, names in ("crates/bus/xml", members), ("docs/schema", lambda schema: keys(json.loads(schema or "{}"))):
    for file in git("ls-tree", "--name-only", last, f"{folder}/").split():
        lost = set(names(text(last, file))) - set(names(text(None, file)))
        wrong += [f"{file}: {name} of {last} is gone" for name in sorted(lost)]

gone, before = set(), {}
for version in [*git("-c", "versionsort.suffix=-", "tag", "--merged", last, "--sort=version:refname", "v*").split(), None]:
    there = codes(version)
    wrong += [f"{code} is used again{f' in {version}' if version else ''}" for code in sorted(gone & there.keys())]
    if not version:
        for code in sorted(code for code in there.keys() & before.keys() if there[code] != before[code]):
            print(f"{code} had another message in {last}: is its meaning the same?\n  {before[code]}\n  {there[code]}")
    gone |= before.keys() - there.keys()
    before = there

for line in wrong:
    print(f"FAIL {line}")
if not wrong:
    print(f"ok   members of D-Bus and keys of JSON are those of {last} or more, no error code is used again")
sys.exit(bool(wrong))
