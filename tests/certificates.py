"""A certification authority of a test's own, with the certificates that it signs."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


class KeyPair(NamedTuple):
    """A certificate and its key, each in a PEM file."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates into a folder; `ca` is the file of its own."""

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = _new_key()
        self.ca = folder / "ca.pem"
        builder = self._builder(self._name, self._key, -_DAY, 30 * _DAY)
        self._certificate = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        ).sign(self._key, hashes.SHA256())
        self.ca.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def sign(
        self, name: str, hosts: Sequence[str] = (), *, days: int = 30, file: str = ""
    ) -> KeyPair:
        """Make a certificate of this common name for these hosts; one of -1 days has ended."""
        key = _new_key()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(subject, key, -30 * _DAY, days * _DAY)
        if hosts:
            names = x509.SubjectAlternativeName(list(map(_general_name, hosts)))
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        made = KeyPair(
            self._folder / f"{file or name}.pem", self._folder / f"{file or name}.key.pem"
        )
        made.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        made.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return made

    def _builder(
        self,
        subject: x509.Name,
        key: rsa.RSAPrivateKey,
        begin: datetime.timedelta,
        end: datetime.timedelta,
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begin)
            .not_valid_after(now + end)
        )


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65_537, key_size=2048)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
