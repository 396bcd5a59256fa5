"""The files of certificates for a service, and why a connection over TLS to it fails.

Clients tell little of a handshake that failed; so one is made again here, and its error is put in
words. No secret is sent on it.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import certifi

from pushlane.core.errors import BadInput
from pushlane.util.files import Stamp, stamp_of
from pushlane.util.texts import each_host

_LOOK_S = 3.0
_ALERT_S = 0.5  # with TLS 1.3 a server says only after the handshake that it wants a certificate

_NO_TLS = "it speaks no TLS at this port: check the port, or use the URL without TLS"
_PORTS = {"https": 443, "pulsar+ssl": 6651, "rediss": 6379}
EXPIRED = 10
_UNSIGNED = {2, 7, 18, 19, 20, 21}
OTHER_HOST = {62, 64}
NOT_TLS = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"}
"""What OpenSSL says of an answer that is no TLS."""


class TlsFiles(NamedTuple):
    """The authorities that are trusted, and our own certificate: None for those of the system,
    and for none. `service` is what the names of their settings begin with.
    """

    service: str
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    def stamp(self) -> tuple[Stamp | None, ...]:
        """Return what changes whenever one of the files does."""
        return tuple(map(stamp_of, self[1:]))

    def check_ca(self) -> bytes:
        """Return the certificates that are trusted, b"" when there is no file of them.

        Raises BadInput when the file cannot be read, or holds no certificate.
        """
        if self.ca_file is None:
            return b""
        try:
            ssl.create_default_context(cafile=self.ca_file)
            return self.ca_file.read_bytes()
        except (OSError, ValueError) as error:  # ssl's own are of these
            raise self._unusable("ca_file", self.ca_file, "certificates", error) from error

    def check_pair(self) -> bytes:
        """Return our key and certificate in one, b"" for none. Raises BadInput for a bad file."""
        if self.cert_file is None or self.key_file is None:
            return b""
        try:
            context = ssl.create_default_context()
            context.load_cert_chain(self.cert_file, self.key_file, _no_password)
            return self.key_file.read_bytes() + b"\n" + self.cert_file.read_bytes()
        except (OSError, ValueError) as error:
            pair = "a certificate and its key, without a password,"
            raise self._unusable("cert_file", self.cert_file, pair, error) from error

    def context(self) -> ssl.SSLContext:
        """Return a context that checks the server and its host. Raises BadInput for a bad file."""
        self.check_ca()
        self.check_pair()
        context = ssl.create_default_context(cafile=str(self.ca_file or certifi.where()))
        if self.cert_file is not None:
            context.load_cert_chain(self.cert_file, self.key_file, _no_password)
        return context

    def _unusable(self, part: str, path: Path, wanted: str, error: Exception) -> BadInput:
        return BadInput(
            f"{self.service}_{part} {path} cannot be used ({type(error).__name__}): give {wanted} "
            "in PEM form, in files that this user may read"
        )


async def tls_problem(host: str, port: int, files: TlsFiles) -> str:
    """Return what is wrong with TLS at this place and what to do; '' when that is not the matter.

    It takes half a second where nothing is wrong, and a few seconds at most.
    """
    try:
        context = files.context()
        if not await _connects(host, port, None):
            return ""
        if not await _connects(host, port, context):
            return _NO_TLS
    except BadInput as error:
        return str(error)
    except ssl.SSLError as error:
        return tls_refusal(error, host, files)
    return ""


async def _connects(host: str, port: int, context: ssl.SSLContext | None) -> bool:
    """Connect, listen for a moment, and hang up. False when nobody answers."""
    try:
        async with asyncio.timeout(_LOOK_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLError:
        raise
    except (OSError, TimeoutError):
        return False
    try:
        if context is not None:
            async with asyncio.timeout(_ALERT_S):
                await reader.read(1)
    except ssl.SSLError:
        raise
    except OSError:  # it hung up, or said nothing: TimeoutError is one too
        return True
    finally:
        writer.close()
    return True


async def is_of_our_authority(host: str, port: int, files: TlsFiles) -> bool:
    """Return whether a server has a certificate for this host that our authority has signed."""
    try:
        async with asyncio.timeout(_LOOK_S):
            _, writer = await asyncio.open_connection(host, port, ssl=files.context())
    except (BadInput, OSError):  # ssl's own and TimeoutError are of these
        return False
    writer.close()
    return True


async def url_tls_problem(url: str, files: TlsFiles) -> str:
    """Return what is wrong with TLS at a URL, as `tls_problem` does; '' for one without TLS.

    Of a URL with several hosts it is the first.
    """
    parts = urlsplit(each_host(url)[0])
    port = _PORTS.get(parts.scheme)
    if port is None or parts.hostname is None:
        return ""
    return await tls_problem(parts.hostname, parts.port or port, files)


def tls_refusal(error: ssl.SSLError, host: str, files: TlsFiles) -> str:
    """Put an error of TLS into words, with what to do."""
    service = files.service
    if isinstance(error, ssl.SSLCertVerificationError):
        return _of_certificate(error, host, files)
    reason = (error.reason or "").upper()
    if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason:
        return f"it asks for a client certificate: set {service}_cert_file and {service}_key_file"
    if "UNKNOWN_CA" in reason or "BAD_CERTIFICATE" in reason or "CERTIFICATE" in reason:
        return (
            f"it does not accept our certificate {files.cert_file} ({reason}): give one that has "
            f"not expired, from an authority that it trusts, in {service}_cert_file"
        )
    if reason in NOT_TLS:
        return _NO_TLS
    return f"the TLS handshake fails ({reason or type(error).__name__}): look at its log"


def _of_certificate(error: ssl.SSLCertVerificationError, host: str, files: TlsFiles) -> str:
    setting = f"{files.service}_ca_file"
    if error.verify_code in OTHER_HOST:
        return (
            f"its certificate is for another host than {host}: use a name that is in the "
            "certificate, or have one made for this name; nothing was sent"
        )
    if error.verify_code == EXPIRED:
        return "its certificate has expired: renew it on the server; nothing was sent"
    if error.verify_code in _UNSIGNED:
        trusted = files.ca_file or "that this system trusts"
        return (
            f"its certificate is not signed by an authority {'in ' if files.ca_file else ''}"
            f"{trusted}: give the authority's certificate in {setting}; nothing was sent"
        )
    return f"its certificate is refused ({error.verify_message}); nothing was sent"


def _no_password() -> str:
    """Keep OpenSSL from asking for the password of a key on the terminal."""
    return ""
