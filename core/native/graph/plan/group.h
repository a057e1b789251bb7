// Pointwise calls on their way to be one: their operands over one space of indices, their programs as one list.
#pragma once
#include "graph/plan/record.h"
#include "ops/pointwise/expr.h"

namespace ts::graph {

class Group {
public:
  static bool takes(const Work& w); // a pointwise call that may be part of one
  bool empty() const { return members_.empty(); }
  size_t size() const { return members_.size(); }
  Id node() const { return members_.back()->node; }
  void start(const Work& w);
  // False, with nothing changed, where the call does not belong here.
  bool add(const Work& w);
  void clear();
  // The one call. `needed`: which results, in the order of writes, are stored; the last is.
  Work joined(const std::function<bool(Id buffer)>& needed) const;
  // Whether the kernel gives the same bits for the call as for the members one by one, on numbers of our own.
  bool agrees(Device device, const Work& joined) const;

private:
  enum class From : uint8_t { Input, Constant, Instruction };
  struct Ref {
    From from;
    uint16_t at;
  };
  struct Operand { // a tensor over the space, or a number
    Place place;
    ts_tensor tensor{}; // but for sizes and strides
    Dims strides;
  };
  struct Code {
    uint16_t op;
    Ref a, b, c;
  };
  struct Write {
    Operand to;
    Ref value; // as it would be read again
    Ref stored;
    bool readable; // its register has what memory would have
    bool last = true;
  };
  struct Bound { // an operand of a member, in the trial
    bool is_write;
    uint16_t at; // in inputs_, writes_
  };
  struct Space {
    Dims sizes;
    std::vector<Operand> operands; // of the call: outputs, inputs
  };

  static Space space_of(const Work& w);
  static bool spread(std::vector<Operand*> operands, const Dims& from, const Dims& to);
  bool meets(const Space& s, int32_t n_outputs) const;
  bool read(const Operand& o, Ref& out, Bound& bound);
  bool append(const Work& w, const Space& s);
  Ref constant(const ts_program& p, int32_t k);

  std::vector<const Work*> members_;
  std::vector<std::vector<Bound>> bound_; // by member
  Dims sizes_;
  std::vector<Operand> inputs_;
  std::vector<double> constants_;
  std::vector<int64_t> integers_;
  std::vector<Code> code_;
  std::vector<Write> writes_;
};

} // namespace ts::graph
