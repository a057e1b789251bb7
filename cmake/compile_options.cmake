# One place for what every target of the project is compiled with.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_CURRENT_LIST_DIR}/ccache.sh)
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endif()

# A compiler that links its library statically must not lend ours to other extensions of the process: what is unique by
# name in it (locales) would be shared between two copies, and printing a number elsewhere crash.
add_link_options(-Wl,--exclude-libs,libstdc++.a:libgcc.a)

function(tesserack_compile_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -fno-plt)
  if(TESSERACK_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(TESSERACK_SANITIZE STREQUAL "thread")
    target_compile_options(${target} PRIVATE -fsanitize=thread -fno-omit-frame-pointer -O1 -g1)
    target_link_options(${target} PRIVATE -fsanitize=thread)
  elseif(TESSERACK_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=address,undefined -fno-sanitize-recover=undefined
                                             -fno-omit-frame-pointer -O1 -g1)
    target_link_options(${target} PRIVATE -fsanitize=address,undefined)
  endif()
endfunction()

# What runs once is compiled for size. There GCC warns of the values of empty optionals, which nobody reads; two of its
# passes take 5 % of the time and leave the code larger; and it clears away what it will not need again, though most
# units end before they would need the memory: another 5 % of the large ones.
function(tesserack_compile_rarely target)
  target_compile_options(${target} PRIVATE -Os)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized -fno-tree-vrp -fno-gcse
                                             "SHELL:--param ggc-min-heapsize=600000")
  endif()
endfunction()
