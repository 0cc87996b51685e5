"""Texts of others in a model card: a name is shown as it is, and never read as headings, links or HTML."""

from __future__ import annotations

import html
import re

from surgeon.core.errors import printable

_MEANS_SOMETHING = re.compile(r"[\\*\[\]|#~$]|(?<!\w)_|_(?!\w)|^(?=[-+=]|\d+[.)] )")


def sentence(text: str) -> str:
    """A sentence in one line, in which only code in backquotes is markup."""
    return html.escape(_MEANS_SOMETHING.sub(r"\\\g<0>", printable(" ".join(text.split()))), quote=False)


def name(text: str) -> str:
    """The same for a name, which has no markup."""
    return sentence(text).replace("`", r"\`")


def code(text: str) -> str:
    """A name in backquotes."""
    return f"`{printable(' '.join(text.split())).replace('`', chr(39)) or ' '}`"
