# The extension module tesserack._native, and outside of wheel builds a package tree to run it from.

# For another Python than the one that builds (tools/targets.py) its headers are named, and nothing of it is run.
if(PYTHON_MODULE_EXTENSION AND Python_INCLUDE_DIR)
  find_package(Python 3.10 REQUIRED COMPONENTS Development.Module)
else()
  find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
endif()
execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --include_dir OUTPUT_VARIABLE nanobind_include
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
get_filename_component(nanobind_root ${nanobind_include} DIRECTORY)

file(GLOB_RECURSE binding_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/core/native/python/*.cpp)
if(NOT binding_sources)
  message(WARNING "core/native/python has no sources: tesserack._native is not built")
  return()
endif()
# What nanobind binds is called rarely, and takes long to read and to optimise: one unit, for size. Its files are named
# here: no other one includes nanobind.
set(bound_sources comm_bindings.cpp devices/runtime_bindings.cpp devices/service_bindings.cpp devices/stream_object.cpp
                  devices/watch_bindings.cpp graph/existing.cpp graph/graph_bindings.cpp graph/guard_bindings.cpp
                  graph/tokens.cpp module.cpp)
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
tesserack_compile_rarely(_native_rare)
add_library(_native_bound OBJECT ${bound_sources})
set_target_properties(_native_bound PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
target_link_libraries(_native_bound PRIVATE Python::Module tesserack)
target_include_directories(_native_bound SYSTEM PRIVATE ${nanobind_include})
tesserack_compile_rarely(_native_bound)
# nanobind itself, in which Python's objects are seen as more than one type.
add_library(_native_nanobind OBJECT ${nanobind_root}/src/nb_combined.cpp)
target_link_libraries(_native_nanobind PRIVATE Python::Module)
target_include_directories(_native_nanobind SYSTEM PRIVATE ${nanobind_include} ${nanobind_root}/ext/robin_map/include)
target_compile_options(_native_nanobind PRIVATE -Os -w -fno-strict-aliasing -ffunction-sections -fdata-sections)
set_target_properties(_native_nanobind PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
foreach(target _native_bound _native_nanobind)
  target_compile_definitions(${target} PRIVATE NB_DOMAIN=tesserack NB_COMPACT_ASSERTIONS)
endforeach()
add_library(_native MODULE ${binding_sources} $<TARGET_OBJECTS:_native_rare> $<TARGET_OBJECTS:_native_bound>
                           $<TARGET_OBJECTS:_native_nanobind>)
target_link_libraries(_native PRIVATE Python::Module tesserack)
target_link_options(_native PRIVATE -Wl,--gc-sections) # most of nanobind
set(module_suffix ${PYTHON_MODULE_EXTENSION})
if(NOT module_suffix)
  set(module_suffix .${Python_SOABI}${CMAKE_SHARED_MODULE_SUFFIX})
endif()
set_target_properties(_native PROPERTIES PREFIX "" SUFFIX ${module_suffix})
tesserack_compile_together(_native_rare "^$")
tesserack_compile_together(_native "guard[.]cpp")
foreach(target _native _native_rare)
  target_precompile_headers(${target} PRIVATE <algorithm> <functional> <memory> <string> <vector>
                            core/native/dispatch/boxing.h core/native/python/types.h)
endforeach()
# Default visibility, because inline variables of the core's headers must be one object in both libraries; inline functions
# need not be. nanobind's own types stay hidden, which GCC would warn about.
foreach(target _native _native_rare _native_bound)
  tesserack_compile_options(${target})
  target_compile_options(${target} PRIVATE -Wno-attributes -fno-semantic-interposition -fvisibility-inlines-hidden)
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET default)
endforeach()
target_compile_options(_native PRIVATE -falign-functions=64) # as the core
# What is of the binding alone is nobody else's to find.
target_link_options(_native PRIVATE -Wl,-Bsymbolic-functions -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/binding.map)
set_target_properties(_native PROPERTIES LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/binding.map)
# In the build tree beside the core, of which the path would be in the library: of another length, in each folder.
set_target_properties(_native PROPERTIES INSTALL_RPATH "$ORIGIN/lib" BUILD_RPATH_USE_ORIGIN ON)
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
