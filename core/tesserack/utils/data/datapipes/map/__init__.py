"""Datapipes of samples by index."""

from tesserack.utils.data.datapipes.map.pipes import BatcherMapDataPipe as Batcher
from tesserack.utils.data.datapipes.map.pipes import ConcaterMapDataPipe as Concater
from tesserack.utils.data.datapipes.map.pipes import MapperMapDataPipe as Mapper
from tesserack.utils.data.datapipes.map.pipes import SequenceWrapperMapDataPipe as SequenceWrapper
from tesserack.utils.data.datapipes.map.pipes import ShufflerIterDataPipe as Shuffler
from tesserack.utils.data.datapipes.map.pipes import ZipperMapDataPipe as Zipper

__all__ = ["Batcher", "Concater", "Mapper", "SequenceWrapper", "Shuffler", "Zipper"]
