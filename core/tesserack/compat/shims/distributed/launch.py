"""``torch.distributed.launch``, the old name of ``torch.distributed.run``."""

from tesserack.distributed.launcher import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
