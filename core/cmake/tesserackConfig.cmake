# find_package(tesserack CONFIG), found through tesserack_DIR = tesserack.cmake_dir():
#
#   tesserack::abi                            the headers, nothing to link
#   tesserack_add_backend(NAME SOURCES...)    a backend: a module library that shows its entry point and version
#   tesserack_add_plugin(NAME SOURCES...)     the same for a library of operators and dispatch keys
cmake_minimum_required(VERSION 3.20)

# The headers lie beside this folder, in an installation as in a checkout.
if(EXISTS "${CMAKE_CURRENT_LIST_DIR}/../include/tesserack/abi.h")
  get_filename_component(tesserack_INCLUDE_DIR "${CMAKE_CURRENT_LIST_DIR}/../include" ABSOLUTE)
endif()
if(NOT tesserack_INCLUDE_DIR)
  set(tesserack_FOUND FALSE)
  set(tesserack_NOT_FOUND_MESSAGE "tesserack/abi.h is not beside ${CMAKE_CURRENT_LIST_DIR}: reinstall tesserack")
  return()
endif()

foreach(_part IN ITEMS MAJOR MINOR)
  file(STRINGS "${tesserack_INCLUDE_DIR}/tesserack/abi.h" _line REGEX "^#define TS_ABI_${_part} ")
  string(REGEX REPLACE "[^0-9]" "" tesserack_ABI_${_part} "${_line}")
endforeach()

if(NOT TARGET tesserack::abi)
  add_library(tesserack::abi INTERFACE IMPORTED)
  target_include_directories(tesserack::abi INTERFACE "${tesserack_INCLUDE_DIR}")
  target_compile_features(tesserack::abi INTERFACE cxx_std_20)
endif()

set(_tesserack_exports "${CMAKE_CURRENT_LIST_DIR}/exports.map")

# tesserack_add_backend(NAME SOURCES...) builds libNAME.so. Integers wrap, as the contract says; everything but the
# entry point and the version of abi.h is hidden, so that two backends in one process never meet; a missing symbol fails
# the link, not the load.
function(tesserack_add_backend name)
  if(NOT ARGN)
    message(FATAL_ERROR "tesserack: expected source files for the library ${name}")
  endif()
  add_library(${name} MODULE ${ARGN})
  target_link_libraries(${name} PRIVATE tesserack::abi)
  target_compile_options(${name} PRIVATE -Wall -Wextra -fwrapv)
  set_target_properties(${name} PROPERTIES
    PREFIX "lib" CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    target_link_options(${name} PRIVATE "-Wl,--version-script=${_tesserack_exports}" -Wl,-z,defs)
    set_target_properties(${name} PROPERTIES LINK_DEPENDS "${_tesserack_exports}")
  endif()
endfunction()

# tesserack_add_plugin(NAME SOURCES...) builds libNAME.so, for tesserack.dispatch.load_library.
function(tesserack_add_plugin name)
  tesserack_add_backend(${name} ${ARGN})
endfunction()
