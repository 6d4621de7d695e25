"""Builds self-contained HTML pages whose scripts draw embedded JSON.

Content is inserted as text, never as markup, and the content security policy of the page allows its own scripts only.
The answer of a model therefore cannot inject code.
"""

import base64
import hashlib
import html
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

PAGES = Path(__file__).parent / "pages"
"""Template, style sheet and script that all pages share: report.html, report.css, report.js."""


def html_page(title: str, data: str, scripts: Sequence[Path], styles: Sequence[Path]) -> str:
    """Return the text of a page.

    Args:
        title: title of the page, as text.
        data: JSON, which the scripts find in the element `data`.
        scripts: scripts of the page, after the shared report.js.
        styles: style sheets of the page, after the shared report.css.

    Raises:
        OSError: a script or a style sheet cannot be read.
    """
    style = join_files([PAGES / "report.css", *styles])
    script = join_files([PAGES / "report.js", *scripts])
    parts = {
        "title": html.escape(title),
        "style": style,
        "script": script,
        "style_hash": _content_security_policy_hash(style),
        "script_hash": _content_security_policy_hash(script),
        # Inside <script> the browser only recognizes "</script" and "<!--"; JSON decodes \u003c to "<".
        "data": data.replace("<", "\\u003c"),
    }
    return Template(join_files([PAGES / "report.html"])).substitute(parts)


def dump_data(content: object) -> str:
    """Return nested containers as the JSON of a page: in one line, with null for NaN and infinity."""
    return json.dumps(replace_non_finite(content), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def join_files(paths: Sequence[Path]) -> str:
    """Return the texts of files, one after the other."""
    return "".join(path.read_text(encoding="utf-8") for path in paths)


def replace_non_finite(value: object) -> Any:
    """Return a copy of nested containers with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: replace_non_finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [replace_non_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _content_security_policy_hash(text: str) -> str:
    """Return the hash by which a content security policy allows an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
