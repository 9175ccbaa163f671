"""Every link of the built book leads to a file and a heading that are there: links.py target/book."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif tag in ("a", "link", "script", "img") and name in ("href", "src") and value:
                self.links.append(unquote(value))


def main() -> None:
    book = Path(sys.argv[1]).resolve()
    # These have the others' texts once more, and the links of another place.
    pages = {file: Page(file.read_text()) for file in book.rglob("*.html") if file.name not in ("print.html", "404.html", "toc.html")}
    count, wrong = 0, []
    for file, page in pages.items():
        for link in page.links:
            path, _, anchor = link.partition("#")
            if "://" in path or path.startswith(("mailto:", "data:")):
                continue
            count += 1
            target = (file.parent / path).resolve() if path else file
            if not target.exists():
                wrong.append(f"{file.relative_to(book)}: {link}: no such file")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                wrong.append(f"{file.relative_to(book)}: {link}: no such heading")
    print("\n".join(wrong) or f"ok   {len(pages)} pages, {count} links")
    sys.exit(bool(wrong) or len(pages) < 30)


main()
