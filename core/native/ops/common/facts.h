// What is true of an operator beyond its schema, said at its declaration: Def::facts("zero autocast:-/float32").
// Sparse, nested and masked tensors, vmap, autocast, ATen's names and the dtypes for storage read it here, and nowhere
// else.
//
//   elementwise        elements of the result follow from those in their place. Pointwise operators need not say so
//   zero, linear       of one tensor: zero where it is zero; linear in it
//   stored             PyTorch computes it with dtypes that are storage above all: complex32 and floats of 8 bits
//   stored:complex32   with complex32 alone
//   stored:none        with none of them, though it is made of operators that do
//   leaf               made of others here, and one operator in ATen, its in-place form too; leaf:inplace: that alone
//   autocast:P         in regions of autocast it runs by policy P; autocast:P/Q: Q where memory is not the host's.
//                      lower, float32, widest, first, exempt: AutocastPolicy (extend/autocast.h); - : as elsewhere
//   cast               the tensor in the dtype that it is named after
//   alias:NAME         the same operator by another name
//   kernel:NAME        its code, or that of its parts, asks for this kernel, which no declaration has as data, and does
//                      without where a card has none or it declines
#pragma once
#include <map>
#include <string>
#include <string_view>

namespace ts {

// Of an operator by the name before the overload. RuntimeError for words that are none of the above.
void note_facts(const std::string& op, std::string_view words);
// Of every operator that has any, by the name before the overload: all words, "elementwise" of pointwise ones included.
const std::map<std::string, std::string, std::less<>>& facts_by_name();
// Whether the words say it: a whole word.
bool says(std::string_view words, std::string_view word);

} // namespace ts
