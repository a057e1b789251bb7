"""Datapipes that are streams."""

from tesserack.utils.data.datapipes.iter.combining import (
    ConcaterIterDataPipe as Concater,
)
from tesserack.utils.data.datapipes.iter.combining import (
    DemultiplexerIterDataPipe as Demultiplexer,
)
from tesserack.utils.data.datapipes.iter.combining import (
    ForkerIterDataPipe as Forker,
)
from tesserack.utils.data.datapipes.iter.combining import (
    MultiplexerIterDataPipe as Multiplexer,
)
from tesserack.utils.data.datapipes.iter.combining import (
    ZipperIterDataPipe as Zipper,
)
from tesserack.utils.data.datapipes.iter.files import (
    FileListerIterDataPipe as FileLister,
)
from tesserack.utils.data.datapipes.iter.files import (
    FileOpenerIterDataPipe as FileOpener,
)
from tesserack.utils.data.datapipes.iter.files import (
    RoutedDecoderIterDataPipe as RoutedDecoder,
)
from tesserack.utils.data.datapipes.iter.files import (
    StreamReaderIterDataPipe as StreamReader,
)
from tesserack.utils.data.datapipes.iter.grouping import (
    BatcherIterDataPipe as Batcher,
)
from tesserack.utils.data.datapipes.iter.grouping import (
    GrouperIterDataPipe as Grouper,
)
from tesserack.utils.data.datapipes.iter.grouping import (
    UnBatcherIterDataPipe as UnBatcher,
)
from tesserack.utils.data.datapipes.iter.mapping import (
    CollatorIterDataPipe as Collator,
)
from tesserack.utils.data.datapipes.iter.mapping import (
    FilterIterDataPipe as Filter,
)
from tesserack.utils.data.datapipes.iter.mapping import (
    IterableWrapperIterDataPipe as IterableWrapper,
)
from tesserack.utils.data.datapipes.iter.mapping import (
    MapperIterDataPipe as Mapper,
)
from tesserack.utils.data.datapipes.iter.order import (
    SamplerIterDataPipe as Sampler,
)
from tesserack.utils.data.datapipes.iter.order import (
    ShardingFilterIterDataPipe as ShardingFilter,
)
from tesserack.utils.data.datapipes.iter.order import (
    ShufflerIterDataPipe as Shuffler,
)

__all__ = [
    "Batcher",
    "Collator",
    "Concater",
    "Demultiplexer",
    "FileLister",
    "FileOpener",
    "Filter",
    "Forker",
    "Grouper",
    "IterableWrapper",
    "Mapper",
    "Multiplexer",
    "RoutedDecoder",
    "Sampler",
    "ShardingFilter",
    "Shuffler",
    "StreamReader",
    "UnBatcher",
    "Zipper",
]
