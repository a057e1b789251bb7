// What a run of a graph holds.
#pragma once
#include "graph/executor.h"
#include "graph/tracer.h"

namespace ts::graph {

// A node with its constants ready: only places that hold values are filled in a run.
struct Executor::Step {
  Id node = 0;
  std::vector<ts::Value> args;                 // constants as they are, values blank
  std::vector<std::pair<uint32_t, Item>> fill; // arguments that hold values
  std::vector<std::unique_ptr<int64_t[]>> words;
  std::vector<Id> dead; // values that nobody needs any more
};

struct Executor::State {
  std::vector<Tensor> tensors; // by value
  std::vector<Item> numbers;
  std::vector<ts::Value> args; // of the running step
  std::vector<int64_t> words;
  std::vector<Tensor> lists;
  Tracer* outer = nullptr;   // of a program that is written down and calls this one
  std::vector<Id> outer_ids; // what our numbers are there

  const Item& number(const Item& item) const { return item.is_value ? numbers[item.id()] : item; }
  Item outer_item(const Item& item) const {
    bool known = item.is_value && outer_ids[item.id()] != kNone;
    return known ? Item::value(item.tag, outer_ids[item.id()]) : number(item);
  }
  ts::Value argument(const Item& item, TypeKind kind) const {
    const Item& now = number(item);
    return now.tag == Tag::Float || kind == TypeKind::Float ? ts::Value(now.as_double()) : ts::Value(now.i);
  }
  void link(const void* place, const Item& item) const {
    if (outer && item.is_value && outer_ids[item.id()] != kNone) outer->link(place, number(item), outer_ids[item.id()]);
  }
};

} // namespace ts::graph
