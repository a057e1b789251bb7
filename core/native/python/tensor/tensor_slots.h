// Families of slots, properties and methods that make up the Tensor class, one file each.
#pragma once
#include "python/common.h"
#include <vector>

namespace ts::py {

std::vector<PyType_Slot> number_slots();      // tensor_number.cpp: operators and comparisons
std::vector<PyType_Slot> index_slots();       // tensor_index.cpp: len, iter, getitem, setitem, contains
std::vector<PyType_Slot> buffer_slots();      // buffer.cpp
std::vector<PyType_Slot> conversion_slots();  // tensor_methods.cpp: methods, constructor, repr
std::vector<PyGetSetDef> tensor_properties(); // tensor_properties.cpp

std::vector<PyMethodDef> item_methods();     // tensor_item.cpp: item, tolist, __format__
std::vector<PyMethodDef> metadata_methods(); // tensor_metadata.cpp: size, stride, is_contiguous
std::vector<PyMethodDef> autograd_methods(); // tensor_autograd.cpp: backward, hooks, detach_
std::vector<PyMethodDef> interop_methods();  // dlpack.cpp
std::vector<PyMethodDef> subclass_methods(); // tensor_subclass.cpp: _make_subclass, _make_wrapper

} // namespace ts::py
