"""The remoting protocol as values and bytes: codes, limits, bodies. No sockets."""
