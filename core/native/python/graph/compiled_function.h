// Functions that are compiled: what calls graphs in their place, with no word of Python between.
#pragma once
#include "python/graph/guard.h"
#include "python/graph/program.h"
#include <unordered_map>

namespace ts::py_runtime {

// The graphs of a function, each by the signature of its calls and a guard.
class Replays : public std::enable_shared_from_this<Replays> {
public:
  struct Entry {
    std::shared_ptr<Guard> guard;
    int place;
    std::shared_ptr<const Program> program; // where its results can be put together here
  };

  void add(const std::string& signature, Entry entry); // instead of another in its place
  bool empty() const { return entries_.empty(); }
  // Those of a signature; NULL where there are none.
  using List = std::vector<std::shared_ptr<const Entry>>;
  const List* with_key(std::string_view key) const;
  // The first whose guard holds.
  static std::shared_ptr<const Entry> holding(const List& list, const Arguments& given);
  // Of graphs that go by values the one whose first are those of these tensors, else the one found.
  static std::shared_ptr<const Entry> of_values(const List& list, std::shared_ptr<const Entry> found,
                                                const Arguments& given, std::span<const Tensor> in);

private:
  std::unordered_map<std::string, List> entries_;
  mutable const std::pair<const std::string, List>* last_ = nullptr; // asked for
};

// `_CompiledFunction(function, run, failed)`: a call is that of a graph, or `run(args, kwargs)`, or `function`'s while
// there are no graphs to be looked for. Where a graph raises, `failed(place, error, args, kwargs)` has the result, or
// NotImplemented: then the error is raised. To programs it is the function.
void init_compiled_function(PyObject* module);
void use_replays(PyObject* compiled, std::shared_ptr<const Replays> replays); // NULL: calls are the function's
void allow_quick(bool on);                                                    // false: all is to be run by Python

} // namespace ts::py_runtime
