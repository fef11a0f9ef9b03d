"""One client instance per client id: name servers, routes, heartbeats, calls to brokers, tasks."""
