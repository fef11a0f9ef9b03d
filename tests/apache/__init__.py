"""Real Apache RocketMQ servers and Java clients, for tests and benchmarks.

Plain library: nothing here knows a test framework.
"""

from .artifacts import VERSIONS, ArtifactError, cache_root, classpath, fetched, jars
from .cluster import ApacheCluster
from .process import StartError
from .settings import QUICK_CHECKS, RAISED_LIMITS, SHORT_DELAYS

__all__ = [
    "QUICK_CHECKS",
    "RAISED_LIMITS",
    "SHORT_DELAYS",
    "VERSIONS",
    "ApacheCluster",
    "ArtifactError",
    "StartError",
    "cache_root",
    "classpath",
    "fetched",
    "jars",
]
