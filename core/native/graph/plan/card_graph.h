// Calls of kernels as a card's compiler is shown them: the read-only graph of abi.h.
#pragma once
#include "graph/plan/record.h"
#include <array>
#include <deque>
#include <functional>

namespace ts::graph {

class CardGraph {
public:
  using Test = std::function<bool(Id buffer)>;
  // `before`, `after`: whether memory is used by others than these calls, before or after them.
  CardGraph(std::span<const Work* const> work, const Test& before, const Test& after);
  CardGraph(const CardGraph&) = delete;
  CardGraph& operator=(const CardGraph&) = delete;

  const ts_graph& view() const { return graph_; }
  bool is_told(size_t node) const { return told_[node]; } // false: its memory cannot be described so
  // Inputs and outputs as operands of one call, whose order they have.
  std::vector<ts_tensor> tensors(bool outputs) const;
  std::vector<Place> places(bool outputs) const;

private:
  struct Known { // a value
    Place place;
    ts_tensor tensor{};
    bool is_written = false;
  };
  int32_t value(const Place& at, const ts_tensor& t, size_t node);
  void add(const Work& w, const Test& before, const Test& after);
  void add_copy(const Work& w, std::vector<int32_t>& numbers);
  void mark(int32_t v, uint32_t flag);

  std::vector<Known> known_;
  std::vector<ts_graph_value> values_;
  std::vector<ts_graph_node> nodes_;
  std::vector<bool> told_;
  std::vector<int32_t> inputs_, outputs_;
  std::deque<std::vector<int32_t>> numbers_;        // of operands, by node
  std::deque<std::array<int64_t, 2>> bytes_;        // size and stride of what is copied
  std::unordered_map<Id, std::vector<int32_t>> of_; // by buffer: its values
  std::unordered_map<Id, bool> touched_;            // buffers
  ts_graph graph_{};
};

} // namespace ts::graph
