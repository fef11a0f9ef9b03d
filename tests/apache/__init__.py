"""Real Apache RocketMQ servers and Java clients, for tests and benchmarks.

Plain library: nothing here knows a test framework.
"""

from .artifacts import VERSIONS, ArtifactError, cache_root, classpath, jars
from .cluster import RAISED_LIMITS, SHORT_DELAYS, ApacheCluster
from .process import StartError

__all__ = [
    "RAISED_LIMITS",
    "SHORT_DELAYS",
    "VERSIONS",
    "ApacheCluster",
    "ArtifactError",
    "StartError",
    "cache_root",
    "classpath",
    "jars",
]
