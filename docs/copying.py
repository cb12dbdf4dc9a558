"""Site: the copy button copies statements without prompts and output."""

from __future__ import annotations

import doctest
import html
import re
from typing import Any

START = r"<pre><span></span><code><span class=\"gp\">"
SESSION = re.compile(rf"<div class=\"highlight\">({START}.*?)</div>", re.DOTALL)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Highlight sessions as sessions."""
    return re.sub(r"^```python\n(?=>>> )", "```pycon\n", markdown, flags=re.MULTILINE)


def on_page_content(content: str, **_: Any) -> str:
    """Add the text to copy to each session."""
    return SESSION.sub(_with_statements, content)


def _with_statements(block: re.Match[str]) -> str:
    text = html.unescape(re.sub(r"<[^>]+>", "", block[1]))
    copied = html.escape(statements(text)).replace("\n", "&#10;")
    return f'<div class="highlight" data-copy="{copied}">{block[1]}</div>'


def statements(session: str) -> str:
    """Return the statements of a session, with blank lines after compound ones."""
    sources = [example.source for example in doctest.DocTestParser().get_examples(session)]
    return "".join(f"{source}\n" if source.count("\n") > 1 else source for source in sources).rstrip()
