#!/bin/sh
# Compiles through ccache. It preprocesses first, and where a precompiled header is made again finds the one from before,
# which says nothing of what has changed in it: the result that some other change had is then taken.
for word; do
  case $word in *.gch) test "$last" = -o && rm -f "$word" && export CCACHE_DEPEND=1 ;; esac
  last=$word
done
# For a precompiled header itself the text of what it includes counts, not what the preprocessor makes of it: the compiler
# compares headers with their comments, and would read one twice whose comment alone has changed.
# Those headers are cached only where macros and the time of day in them are not minded.
CCACHE_SLOPPINESS=pch_defines,time_macros exec ccache "$@"
