"""An embedded name server and broker for tests, demos and small jobs: no JVM, no set-up."""

from rocketmq_fast.embedded.cluster import Cluster
from rocketmq_fast.embedded.config import BrokerConfig
from rocketmq_fast.embedded.faults import Fault, Faults, Strike
from rocketmq_fast.embedded.files import StoreError

__all__ = ["BrokerConfig", "Cluster", "Fault", "Faults", "StoreError", "Strike"]
