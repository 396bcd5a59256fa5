"""Reads the JSON of Google credentials, and says what is wrong with one that cannot be used.

Nothing is asked of Google here, and no message shows what the JSON holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from google.auth import aws, identity_pool
from google.auth.credentials import Credentials
from google.auth.exceptions import GoogleAuthError
from google.oauth2 import service_account

from pushlane.core.errors import BadInput
from pushlane.dispatcher.sinks.http_client import NO_JSON
from pushlane.lanes.urls import require_http_url

_NEW_KEY = (
    "create a key in the Firebase console (project settings, service accounts) and name its file "
    "as credentials_file"
)
_NEEDED = ("client_email", "private_key", "token_uri")
_UNUSABLE = (GoogleAuthError, ValueError, KeyError, TypeError, AttributeError)


def read_credentials(text: str, scope: str) -> tuple[Credentials, str]:
    """Return the credentials for a scope, and the project that they are of, empty if not said.

    Raises:
        BadInput: they are neither a service account's key nor a workload identity's configuration.
    """
    info = _read_object(text)
    match info.get("type"):
        case "service_account":
            return _service_account(info, scope), str(info.get("project_id") or "")
        case "external_account":
            return _external_account(info, scope), ""
    if "project_info" in info:
        raise BadInput(f"credentials are an app's google-services.json, not a key; {_NEW_KEY}")
    raise BadInput(
        f'credentials are not of the type "service_account" or "external_account"; {_NEW_KEY}'
    )


def _read_object(text: str) -> Mapping[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except NO_JSON:
        if text.strip().endswith(".json"):
            told = "credentials are the name of a file; give it as credentials_file"
        else:
            told = f"credentials are no JSON object; {_NEW_KEY}"
        raise BadInput(told) from None  # the error may quote them


def _service_account(info: Mapping[str, Any], scope: str) -> Credentials:
    for name in _NEEDED:
        if not isinstance(info.get(name), str) or not info[name]:
            raise BadInput(f"credentials of a service account have no {name}; {_NEW_KEY}")
    require_http_url(info["token_uri"], f"token_uri of the credentials is no URL; {_NEW_KEY}")
    kind: Any = service_account.Credentials
    try:
        credentials: Credentials = kind.from_service_account_info(info, scopes=[scope])
    except _UNUSABLE:
        raise BadInput(
            "private_key of the credentials is not an RSA key in PEM (are its line breaks, written "
            f"\\n, still there?); {_NEW_KEY}"
        ) from None  # the error may quote it
    return credentials


def _external_account(info: Mapping[str, Any], scope: str) -> Credentials:
    """Return the credentials of a workload, by a token of its own platform."""
    source = info.get("credential_source")
    is_aws = isinstance(source, Mapping) and "environment_id" in source
    kind: Any = aws.Credentials if is_aws else identity_pool.Credentials
    try:
        credentials: Credentials = kind.from_info(info, scopes=[scope])
    except _UNUSABLE:
        raise BadInput(
            "credentials of an external account are not as `gcloud iam workload-identity-pools "
            "create-cred-config` writes them; create them anew"
        ) from None
    return credentials
