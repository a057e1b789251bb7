"""Functions given to compilers that programs bring along: captured once, guarded, and run as Python wherever that is
not proved to be the same.

``watch.py`` sees what a run does, ``code.py`` what its functions may do, ``state.py`` what the result depends on,
``capture.py`` makes the graph, ``compiled.py`` keeps graphs by what they depend on and runs them.
"""
