"""What a program of many ranks would cost: a model of links, and one rank run without the others.

:class:`Cluster` says how long collectives take, :func:`fit` learns its numbers from :func:`measure`, :func:`simulate`
runs a rank of a world that is not there, and :func:`choose_bucket` picks DistributedDataParallel's bucket size.
"""

from tesserack.distributed.simulation._buckets import BucketChoice, choose_bucket
from tesserack.distributed.simulation._cluster import Cluster, Link
from tesserack.distributed.simulation._fitting import Fit, Sample, fit, measure
from tesserack.distributed.simulation._simulate import Report, simulate

__all__ = [
    "BucketChoice",
    "Cluster",
    "Fit",
    "Link",
    "Report",
    "Sample",
    "choose_bucket",
    "fit",
    "measure",
    "simulate",
]
