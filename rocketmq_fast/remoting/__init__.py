"""Connections: the event loop, framed connections, the client and the server side."""
