"""What datapipes of files share."""

from tesserack.utils.data.datapipes.utils import common, decoder

__all__ = ["common", "decoder"]
