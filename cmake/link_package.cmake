# Links every entry of the Python package SOURCE into TREE; with INPLACE also TREE's libraries into SOURCE.

file(GLOB entries RELATIVE ${SOURCE} ${SOURCE}/*)
foreach(entry IN LISTS entries)
  if(NOT entry MATCHES "^(_native\\..*|lib|__pycache__)$")
    file(CREATE_LINK ${SOURCE}/${entry} ${TREE}/${entry} SYMBOLIC)
  endif()
endforeach()

if(INPLACE)
  file(GLOB libraries RELATIVE ${TREE} ${TREE}/_native.*.so)
  foreach(library IN LISTS libraries ITEMS lib)
    file(CREATE_LINK ${TREE}/${library} ${SOURCE}/${library} SYMBOLIC)
  endforeach()
endif()
