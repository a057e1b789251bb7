# The extension module tesserack._native, and outside of wheel builds a package tree to run it from.

find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
find_package(pybind11 2.13 CONFIG QUIET)
if(NOT pybind11_FOUND)
  execute_process(COMMAND ${Python_EXECUTABLE} -m pybind11 --cmakedir OUTPUT_VARIABLE pybind11_DIR
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  find_package(pybind11 2.13 CONFIG REQUIRED)
endif()

file(GLOB_RECURSE binding_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/core/native/python/*.cpp)
if(NOT binding_sources)
  message(WARNING "core/native/python has no sources: tesserack._native is not built")
  return()
endif()
# Default visibility, because inline variables of the core's headers must be one object in both libraries;
# pybind11's own types stay hidden, which GCC would warn about.
pybind11_add_module(_native MODULE NO_EXTRAS ${binding_sources})
# What pybind11 binds is called rarely, and takes long to optimise.
foreach(source runtime_bindings.cpp stream_object.cpp)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/core/native/python/${source} PROPERTIES
                              SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS -Os)
endforeach()
target_link_libraries(_native PRIVATE tesserack)
tesserack_compile_options(_native)
target_compile_options(_native PRIVATE -Wno-attributes -falign-functions=64) # as the core
target_precompile_headers(_native PRIVATE <algorithm> <functional> <memory> <string> <vector>
                          core/native/dispatch/boxing.h core/native/python/types.h)
set_target_properties(_native PROPERTIES CXX_VISIBILITY_PRESET default INSTALL_RPATH "$ORIGIN/lib")
install(TARGETS _native LIBRARY DESTINATION tesserack)

if(NOT SKBUILD)
  # <build>/py/tesserack holds the two libraries and links to the Python sources: PYTHONPATH=<build>/py.
  set(TESSERACK_PACKAGE_TREE ${PROJECT_BINARY_DIR}/py CACHE PATH "Where to lay the package out")
  set(package_tree ${TESSERACK_PACKAGE_TREE}/tesserack)
  set_target_properties(tesserack PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${package_tree}/lib)
  set_target_properties(_native PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${package_tree} BUILD_RPATH "$ORIGIN/lib"
                                           BUILD_WITH_INSTALL_RPATH ON)
  add_custom_target(package_tree ALL
    COMMAND ${CMAKE_COMMAND} -D SOURCE=${PROJECT_SOURCE_DIR}/core/tesserack -D TREE=${package_tree}
            -D INPLACE=${TESSERACK_DEV_INPLACE} -P ${PROJECT_SOURCE_DIR}/cmake/link_package.cmake
    VERBATIM)
  add_dependencies(package_tree _native)
endif()
