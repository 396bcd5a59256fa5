"""Offers agents (programs that talk) tools to look at pushlane, over MCP.

The Model Context Protocol: https://modelcontextprotocol.io. The tools are made of the list of
operations, and are done with the rights of whoever started them, or whose token is sent along.
"""
