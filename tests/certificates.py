"""A private authority and a certificate of this machine, for tests of TLS."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certificates:
    """PEM files: of the authority, of a server called localhost, and of its key."""

    authority: Path
    certificate: Path
    key: Path


def issue(folder: Path) -> Certificates:
    """A fresh authority, and a certificate that it signed."""
    folder.mkdir(parents=True, exist_ok=True)
    found = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = _builder("accord test authority", "accord test authority", authority_key.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    authority = authority.add_extension(usage, critical=True)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    server = _builder("localhost", "accord test authority", key.public_key()).add_extension(
        x509.SubjectAlternativeName(names), critical=False
    )
    found.authority.write_bytes(_pem(authority.sign(authority_key, hashes.SHA256())))
    found.certificate.write_bytes(_pem(server.sign(authority_key, hashes.SHA256())))
    private = serialization.PrivateFormat.PKCS8
    found.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, private, serialization.NoEncryption()))
    found.key.chmod(0o600)
    return found


def _builder(subject: str, issuer: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
