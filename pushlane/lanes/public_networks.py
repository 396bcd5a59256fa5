"""Tells addresses of the internet from those that only somebody inside a network can reach.

The tables are IANA's registries of special-purpose addresses (RFC 6890), and what clouds add. Of
IPv6 only global unicast (2000::/3) counts as public, so that whatever is assigned later does not.
"""

from __future__ import annotations

from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_NOT_PUBLIC_4 = [
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT; the metadata of Alibaba Cloud
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # the platform of Azure, from each of its machines
        "169.254.0.0/16",  # link-local; the metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocols of the IETF; the metadata of Oracle's cloud
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
]
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_NOT_PUBLIC_6 = [
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocols of the IETF, among them Teredo, benchmarks and ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, which holds an IPv4 address
        "3fff::/20",  # documentation
    )
]
_HOLDS_IPV4 = [
    IPv6Network("::ffff:0:0/96"),  # IPv4-mapped
    IPv6Network("64:ff9b::/96"),  # NAT64, RFC 6052
]


def read_address(text: str) -> Address:
    """Return where a packet to this address ends: of an IPv4 one in an IPv6 one, the former.

    A zone (`%eth0`) is left out. Raises ValueError when the text is no address.
    """
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address) and any(address in network for network in _HOLDS_IPV4):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def is_public(address: Address) -> bool:
    """Tell whether anybody on the internet reaches this address too."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    return address in _GLOBAL_UNICAST and not any(address in network for network in _NOT_PUBLIC_6)


def read_network(text: str) -> Network:
    """Return the network of a CIDR, or of one address. Raises ValueError for anything else."""
    return ip_network(text)
