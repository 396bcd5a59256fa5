"""Makes the values of the page *Not done yet*, which shows a form that was not carried out.

It tells what the form would do and what was typed into it, and offers to send it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pushlane.console.sessions import Kept
from pushlane.core.errors import BadInput, PushlaneError, Unreachable
from pushlane.util.errors import NotFound, NotNow, PreviewChanged

_APPLY = "do/apply"
_SUBMIT = "submit/"
_HIDDEN = {_APPLY: "token", _SUBMIT: "check"}
"""Names the field of each form that is hidden, as it means nothing to people."""


def again_values(
    form: Kept, error: PushlaneError | None, labels: Mapping[str, str]
) -> Mapping[str, Any]:
    """Return the values of the page. `labels` are those of the fields of a submit.

    What a preview was of is told by its title. One that is refused is made anew.
    """
    given = dict(form.fields)
    is_apply, is_submit = form.path == _APPLY, form.path.startswith(_SUBMIT)
    hidden = _HIDDEN.get(_SUBMIT if is_submit else form.path)
    drops_empty = error is None or is_submit
    is_own = {name: name.startswith("_") or name == hidden for name in given}
    typed = [
        (labels.get(name, name) if is_submit else name, name, text)
        for name, text in form.fields
        if not is_own[name] and (text.strip() or not drops_empty)
    ]
    return {
        "action": form.path,
        "what": given.get("_title", ""),
        "typed": typed,
        "own": [field for field in form.fields if is_own[field[0]]],
        "error": str(error) if error else "",
        "present": _present(error),
        "anew": given.get("_anew") or (given.get("_back", "") if is_apply else ""),
        "is_submit": is_submit,
        "is_gone": is_submit and isinstance(error, NotFound),
        "can_send": not is_apply or _may_come_through(given, error),
        "is_over": is_apply and isinstance(error, BadInput),
    }


def _may_come_through(given: Mapping[str, str], error: PushlaneError | None) -> bool:
    """Tell whether a preview whose title is known can be applied as it is."""
    return bool(given.get("_title")) and (error is None or isinstance(error, NotNow | Unreachable))


def _present(error: PushlaneError | None) -> Mapping[str, Any]:
    """Return the present value, if it has changed since the form was shown."""
    if isinstance(error, PreviewChanged):  # which is looked at anew
        return {}
    present = getattr(error, "present", None)
    return present if isinstance(present, Mapping) else {}
