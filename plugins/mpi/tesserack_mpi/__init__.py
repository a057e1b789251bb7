"""Collectives over MPI: ``tesserack.distributed.init_process_group("mpi")`` in a program that ``mpiexec`` starts."""

__all__: list[str] = []
