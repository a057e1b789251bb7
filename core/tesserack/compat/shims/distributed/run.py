"""``torch.distributed.run``: ``python -m torch.distributed.run`` is ``tesserack launch``."""

from tesserack.distributed.launcher import main, make_parser

__all__ = ["get_args_parser", "main"]

get_args_parser = make_parser

if __name__ == "__main__":
    main()
