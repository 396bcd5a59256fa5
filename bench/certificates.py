"""A certificate for the machine itself, made for a run, and the authority that has signed it."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)
_SIGNS = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=False,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


class Certificates(NamedTuple):
    """PEM files: what is to be trusted, and the certificate of a server and its key."""

    authority: Path
    cert: Path
    key: Path


def make_certificates(folder: Path) -> Certificates:
    """Write a certificate for `127.0.0.1` and `localhost` that is good for a day."""
    files = Certificates(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")
    authority, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    own = (
        _named("bench authority", authority.public_key(), authority)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_SIGNS, critical=True)
    )
    hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    names = x509.SubjectAlternativeName(hosts)
    server = _named("bench receiver", key.public_key(), authority).add_extension(
        names, critical=False
    )
    for file, builder in ((files.authority, own), (files.cert, server)):
        file.write_bytes(builder.sign(authority, hashes.SHA256()).public_bytes(Encoding.PEM))
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files


def trusting(certificates: Certificates | None) -> dict[str, str]:
    """Return the variables with which a process trusts the authority; none for None."""
    return {} if certificates is None else {"SSL_CERT_FILE": str(certificates.authority)}


def _named(
    name: str, key: ec.EllipticCurvePublicKey, authority: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    """Begin a certificate with what OpenSSL asks for where it is strict, as in Python 3.13."""
    now = datetime.datetime.now(datetime.UTC)
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name("bench authority"))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(signer, critical=False)
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
