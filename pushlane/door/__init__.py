"""The HTTP API: the list of operations behind tokens, for who has no key of broker or registry.

It keeps no state of its own: any number of processes serve behind a balancer. It needs the extra
`serve`.
"""
