"""Makes the certificates that an API server and its clients need, anew for each run."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID = datetime.timedelta(days=1)
_SKEW = datetime.timedelta(minutes=5)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, each in a file."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Certificates:
    """The authority, the server's pair, the administrator's, and the key that signs tokens."""

    authority: Path
    server: Pair
    administrator: Pair
    tokens: Path


def make(folder: Path) -> Certificates:
    """New ones, in this folder, valid for a day. The authority's key is not kept."""
    key = ec.generate_private_key(ec.SECP256R1())
    authority = _signed(_name("pushlane chart-live"), key, None)
    issued = (authority, key)
    return Certificates(
        _write(folder / "ca.crt", authority.public_bytes(serialization.Encoding.PEM)),
        _pair(folder, "server", _name("kube-apiserver"), issued),
        _pair(folder, "administrator", _name("chart-live", "system:masters"), issued),
        _write(folder / "tokens.key", _pem(ec.generate_private_key(ec.SECP256R1()))),
    )


_Authority = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def _pair(folder: Path, name: str, subject: x509.Name, authority: _Authority) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _signed(subject, key, authority)
    return Pair(
        _write(folder / f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM)),
        _write(folder / f"{name}.key", _pem(key)),
    )


def _signed(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, authority: _Authority | None
) -> x509.Certificate:
    """A certificate by the authority, or by itself: then it is one."""
    issuer, signer = (authority[0].subject, authority[1]) if authority else (subject, key)
    now = datetime.datetime.now(datetime.UTC)
    loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _VALID)
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([loopback]), critical=False)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )


def _name(common: str, organization: str = "pushlane") -> x509.Name:
    """A name; the API server takes the organization for the group of the user."""
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
            x509.NameAttribute(NameOID.COMMON_NAME, common),
        ]
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """In the one form of which the API server takes the public half, too."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _write(path: Path, content: bytes) -> Path:
    path.touch(mode=0o600)
    path.write_bytes(content)
    return path
