"""What processes share: stores of keys and values, in a file, over TCP, in one process."""

from tesserack.distributed._errors import DistError, DistNetworkError, DistStoreError, QueueEmptyError
from tesserack.distributed._file_store import FileStore
from tesserack.distributed._stores import HashStore, PrefixStore, Store
from tesserack.distributed._tcp_store import TCPStore

__all__ = [
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "FileStore",
    "HashStore",
    "PrefixStore",
    "QueueEmptyError",
    "Store",
    "TCPStore",
]
