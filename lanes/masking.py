"""Takes passwords out of text that people will read. Used in messages and by `config` only."""

from __future__ import annotations

import re

MASK = "***"


def masked(text: str) -> str:
    """Return the text without the passwords and query values of URLs in it."""
    text = re.sub(r"://([^/@:]*):[^/]*@", rf"://\1:{MASK}@", text)
    text = re.sub(r"://[^/@:]+@", f"://{MASK}@", text)
    return re.sub(r"([?&][^=&\s]+=)[^&\s]+", rf"\1{MASK}", text)
