"""Rounds of trouble: producers and a group of consumers while servers and requests fail.

A round is drawn from a seed: the same seed gives the same members, the same faults at the same
times and the same refusals of listeners. At its end the checker of histories has its say.
`python -m tests.reliability --seeds 20` runs more of them than the test suite does.
"""
