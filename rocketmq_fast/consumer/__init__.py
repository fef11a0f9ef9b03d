"""Consumers: subscription, rebalance, pull loop, consume service, offsets."""
