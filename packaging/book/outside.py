"""A preprocessor of mdbook: what documents link to outside of docs/ is linked to where the project is kept; the first page is the README."""

import json
import os.path
import re
import sys

KEPT = "https://github.com/linkspan/linkspan/blob/main/"


def moved(text: str, folder: str) -> str:
    """The text with the links of a document that lies in this folder of the tree."""

    def link(found: re.Match[str]) -> str:
        target, _, anchor = found[1].partition("#")
        if not target or "://" in target:
            return found[0]
        path = os.path.normpath(os.path.join(folder, target))
        inside = path.startswith("docs/") and path.endswith(".md")
        place = os.path.relpath(path, "docs" if folder == "." else folder) if inside else KEPT + path
        return f"]({place}{'#' if anchor else ''}{anchor})"

    return re.sub(r"\]\(([^()\s]+)\)", link, text)


def walk(items: list) -> None:
    for item in items:
        if chapter := isinstance(item, dict) and item.get("Chapter"):
            folder = os.path.join("docs", os.path.dirname(chapter["path"] or ""))
            if chapter["path"] == "introduction.md":
                with open("README.md", encoding="utf-8") as file:
                    chapter["content"] = moved(file.read(), ".")
            else:
                chapter["content"] = moved(chapter["content"], os.path.normpath(folder))
            walk(chapter["sub_items"])


if sys.argv[1:2] != ["supports"]:
    _, book = json.load(sys.stdin)
    walk(book.get("sections") or book.get("items"))
    json.dump(book, sys.stdout)
