// A call of an operator as a kernel written in C sees it: ts_boxed of abi.h.
#pragma once
#include "dispatch/operator.h"
#include "runtime/border.h"

namespace ts {

// A kernel, and who registered it. Stays for the life of the process.
struct CKernel {
  ts_boxed_fn run;
  void* ctx;
  std::string owner;
};

} // namespace ts

// Lives on the stack of the thread that runs the kernel. Tensors have numbers: indices of `tensors`.
struct ts_boxed {
  // `key` is -1 for an operator's own function; `rest` are keys still to be considered, `hidden` is the kernel's key
  // where its own calls do not come back to it.
  ts_boxed(const ts::Operator& op, ts::Frame& frame, int key, ts::KeySet rest, ts::KeySet hidden);
  ~ts_boxed();
  ts_boxed(const ts_boxed&) = delete;
  ts_boxed& operator=(const ts_boxed&) = delete;

  // False if the kernel declined. Raises what it failed with, or what is wrong with its results.
  bool run(const ts::CKernel& kernel);

  // What the table's functions do; they raise.
  void info(ts_boxed_info* out);
  void argument(int32_t k, ts_value* out);
  void result(int32_t k, ts_value* out);
  void describe(int64_t number, ts_tensor* out);
  void place(int64_t number, ts_place* out);
  void data(int64_t number, void** out);
  void set_argument(int32_t k, const ts_value* value);
  void redispatch();
  void invoke(const char* name, const ts_value* args, int32_t n_args, ts_value* results, int32_t n_results);
  void empty(const int64_t* sizes, int32_t ndim, int32_t dtype, int64_t like, int64_t* number);
  void list(const int64_t* numbers, int32_t n, ts_value* out);
  void set_result(int32_t k, const ts_value* value);
  void drop(int64_t number);
  void release_interpreter(bool on);

  // The calling thread's call of that address; ValueError unless its kernel runs now and holds the interpreter.
  static ts_boxed& live(ts_boxed* call, bool interpreter_released = false);

private:
  struct Entry {
    ts::Tensor tensor; // undefined: None
    bool dropped = false;
    ts::Tensor plain; // its values, where a conjugation or negation was pending
  };
  struct Argument {
    ts::Value value;
    int64_t first = -1; // number of its first tensor
    ts::OwnedValues owned;
    std::vector<ts::Tensor> tensors; // what `value` refers to, once it was set
  };
  // What set_result or redispatch gave.
  struct Slot {
    bool set = false;
    int64_t first = -1;
  };

  int64_t add(ts::Tensor t);
  ts_value to_c(const ts::Value& v, int64_t& first, int32_t k);
  // Refers to `keep` for tensors, and to the caller's memory for other lists.
  ts::Value from_c(const ts::ArgType& type, const ts_value& v, const std::string& what, std::vector<ts::Tensor>& keep);
  ts::Tensor tensor_at(int64_t number) const; // may be undefined; IndexError
  const ts::Tensor& some_tensor_at(int64_t number) const;
  const Entry& entry(int64_t number) const;
  bool is_written(int64_t number) const;
  const ts::Tensor& memory_at(int64_t number); // what the kernel may look at; undefined: None
  std::string argument_name(int32_t k) const;
  void check_results();
  void hand_over();

  const ts::Operator& op_;
  ts::Frame& frame_;
  int key_;
  ts::KeySet rest_, hidden_;
  std::string schema_text_, key_text_;
  std::vector<Entry> tensors_;
  std::vector<Argument> args_;
  ts::Results set_, below_; // set_result's, and the last redispatch's
  Slot slots_[ts::Results::kMax];
  bool redispatched_ = false;
  bool released_ = false;
  void* token_ = nullptr; // of the released interpreter
  ts_boxed* outer_;
  int depth_;
};
