# The extension module tesserack._native, and outside of wheel builds a package tree to run it from.

# For another Python than the one that builds (tools/targets.py) its headers are named, and nothing of it is run.
if(PYTHON_MODULE_EXTENSION AND Python_INCLUDE_DIR)
  find_package(Python 3.10 REQUIRED COMPONENTS Development.Module)
else()
  find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
endif()
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
# What pybind11 binds is called rarely, takes long to read and to optimise: one unit for size. Its files are named here:
# no other one includes pybind11.
set(bound_sources comm_bindings.cpp devices/runtime_bindings.cpp devices/service_bindings.cpp devices/stream_object.cpp
                  devices/watch_bindings.cpp graph/existing.cpp graph/graph_bindings.cpp graph/guard_bindings.cpp
                  graph/tokens.cpp)
list(TRANSFORM bound_sources PREPEND ${PROJECT_SOURCE_DIR}/core/native/python/)
list(REMOVE_ITEM binding_sources ${bound_sources})
# So is what is only reached by an error, or once for a backend or an operator.
set(rare_sources autograd/saved_tensor_object.cpp calls/named_results.cpp calls/parse_error.cpp cycles.cpp
                 devices/dtype_object.cpp devices/python_backend.cpp devices/python_plan.cpp devices/python_services.cpp
                 devices/python_streams.cpp errors.cpp graph/traced_index.cpp graph/traced_size.cpp shown_package.cpp
                 tensor/buffer.cpp tensor/dlpack.cpp)
list(TRANSFORM rare_sources PREPEND ${PROJECT_SOURCE_DIR}/core/native/python/)
list(REMOVE_ITEM binding_sources ${rare_sources})
add_library(_native_rare OBJECT ${rare_sources})
target_link_libraries(_native_rare PRIVATE Python::Module tesserack)
target_compile_options(_native_rare PRIVATE -Os $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
add_library(_native_bound OBJECT ${bound_sources})
set_target_properties(_native_bound PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 4)
target_link_libraries(_native_bound PRIVATE pybind11::module tesserack)
target_compile_options(_native_bound PRIVATE -Os)
pybind11_add_module(_native MODULE NO_EXTRAS ${binding_sources} $<TARGET_OBJECTS:_native_rare>
                    $<TARGET_OBJECTS:_native_bound>)
target_link_libraries(_native PRIVATE tesserack)
tesserack_compile_together(_native_rare "^$")
tesserack_compile_together(_native "guard[.]cpp")
foreach(target _native _native_rare)
  target_precompile_headers(${target} PRIVATE <algorithm> <functional> <memory> <string> <vector>
                            core/native/dispatch/boxing.h core/native/python/types.h)
endforeach()
# Default visibility, because inline variables of the core's headers must be one object in both libraries; inline functions
# need not be. pybind11's own types stay hidden, which GCC would warn about.
foreach(target _native _native_rare _native_bound)
  tesserack_compile_options(${target})
  target_compile_options(${target} PRIVATE -Wno-attributes -fno-semantic-interposition -fvisibility-inlines-hidden)
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET default)
endforeach()
target_compile_options(_native PRIVATE -falign-functions=64) # as the core
# What is of the binding alone is nobody else's to find.
target_link_options(_native PRIVATE -Wl,-Bsymbolic-functions -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/binding.map)
set_target_properties(_native PROPERTIES LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/binding.map)
set_target_properties(_native PROPERTIES INSTALL_RPATH "$ORIGIN/lib")
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
            -P ${PROJECT_SOURCE_DIR}/cmake/link_package.cmake
    VERBATIM)
  add_dependencies(package_tree _native)
endif()
