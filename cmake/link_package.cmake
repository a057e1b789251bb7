# Links every entry of the Python package SOURCE into TREE.

file(GLOB entries RELATIVE ${SOURCE} ${SOURCE}/*)
foreach(entry IN LISTS entries)
  if(NOT entry MATCHES "^(_native\\..*|lib|__pycache__)$")
    file(CREATE_LINK ${SOURCE}/${entry} ${TREE}/${entry} SYMBOLIC)
  endif()
endforeach()
