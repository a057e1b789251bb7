// ts_dispatch of abi.h: keys, kernels and operators from C.
#include "extend/boxed_call.h"
#include "extend/custom.h"
#include "runtime/plugin.h"
#include "runtime/recording_state.h"
#include <cstring>

namespace ts {
namespace {

// --- running kernels ---------------------------------------------------------------------------------------------

// As a kernel in Python: what it computes does not come back to its key, what it redispatches does.
void run_c_kernel(void* ctx, const Operator& op, Frame& f, KeySet keys) {
  int key = highest_key(keys);
  bool of_backend = key < key::kBackendBits;
  if (of_backend) check_backend_call(op, f);
  bool hides = !of_backend && key != key::Autograd && !(thread_state().exclude & key_bit(key));
  KeySet hidden = hides ? key_bit(key) : 0;
  bool done;
  {
    ExcludeKeys exclude(hidden);
    note_hidden_dependence();
    ts_boxed call(op, f, key, keys & below(key), hidden);
    done = call.run(*static_cast<const CKernel*>(ctx));
  }
  if (!done && !of_backend) return redispatch(op, f, keys & below(key));
  if (!done) op.body(op, f);
  if (of_backend) count_writes(op, f);
}

bool any_meta(const Frame& f) {
  for (int32_t k = 0; k < f.nargs; ++k) {
    const Value& v = f.args[k];
    if (v.tag == Tag::Tensor && v.as_tensor().device().is_meta()) return true;
    if (v.tag == Tag::Tensors)
      for (const Tensor& t : v.as_tensors())
        if (t.defined() && t.device().is_meta()) return true;
  }
  return false;
}

// An operator's own function. What has no data goes to the rule for shapes, if there is one.
void run_c_body(const Operator& op, Frame& f) {
  const auto& kernel = *static_cast<const CKernel*>(op.extension);
  if (!op.composite() && any_meta(f)) {
    if (runs_body(op, kMetaBackend))
      fail(ErrorKind::NotImplemented, op.name(), ": no rule for shapes; give one with register_fake");
    const Kernel* rule = op.table.find(kMetaBackend);
    return rule->fn(rule->ctx, op, f, key_bit(kMetaBackend));
  }
  note_hidden_dependence();
  ts_boxed call(op, f, -1, 0, 0);
  if (kernel.run && call.run(kernel)) return;
  std::string known;
  for (const Backend* b : backends())
    if (!runs_body(op, b->id())) known += (known.empty() ? "" : ", ") + b->name();
  fail(ErrorKind::NotImplemented, op.name(), ": no kernel for this case (registered: ", known.empty() ? "none" : known,
       "); give one with register_kernel");
}

// --- registering -------------------------------------------------------------------------------------------------

std::string owner_name(const char* owner) {
  if (owner && *owner) return owner;
  return library_in_setup().empty() ? "a library" : library_in_setup();
}

const char* some(const char* text, const char* what) {
  TS_CHECK_VALUE(text && *text, what, ", got ", text ? "an empty one" : "NULL");
  return text;
}

int register_key_c(const char* name, const char* neighbour, int32_t before) {
  return to_status([&] {
    add_key(some(name, "register_key: expected a name"), some(neighbour, "register_key: expected a neighbour's name"),
            before != 0);
  });
}

int enable_key_c(const char* key, int32_t on, int32_t* was) {
  return to_status([&] {
    bool before = enable_key(some(key, "enable_key: expected a key's name"), on != 0);
    if (was) *was = before;
  });
}

int set_kernel_c(const char* op, const char* key, ts_boxed_fn fn, void* ctx, const char* owner) {
  return to_status([&] {
    some(key, "set_kernel: expected a key's name");
    if (!fn) return install_kernel(op, key, Kernel());
    auto kernel = std::make_unique<CKernel>(CKernel{fn, ctx, owner_name(owner)});
    install_kernel(op, key, {run_c_kernel, kernel.get(), kernel->owner.c_str()});
    (void)kernel.release(); // stays for the life of the process
  });
}

int define_operator_c(const ts_operator* given) {
  return to_status([&] {
    TS_CHECK_VALUE(given && given->struct_size >= offsetof(ts_operator, doc),
                   "define_operator: expected a description with its struct_size");
    ts_operator d{};
    std::memcpy(&d, given, std::min(given->struct_size, sizeof d));
    some(d.schema, "define_operator: expected a schema");
    auto unknown = d.flags & ~static_cast<uint32_t>(TS_O_COMPOSITE);
    TS_CHECK_VALUE(!unknown, "define_operator: unknown flags ", unknown);
    auto kernel = std::make_unique<CKernel>(CKernel{d.run, d.ctx, owner_name(d.owner)});
    define_operator({d.schema, d.doc ? d.doc : "", run_c_body, kernel.get(), kernel->owner.c_str(),
                     (d.flags & TS_O_COMPOSITE) != 0});
    (void)kernel.release();
  });
}

// --- the boxed call ----------------------------------------------------------------------------------------------

template <auto Method, class... A> int on_call(ts_boxed* call, A... args) {
  return to_status([&] { (ts_boxed::live(call).*Method)(args...); });
}

int release_interpreter_c(ts_boxed* call, int32_t on) {
  return to_status([&] { ts_boxed::live(call, true).release_interpreter(on != 0); });
}

const ts_dispatch table = {sizeof(ts_dispatch),
                           register_key_c,
                           enable_key_c,
                           set_kernel_c,
                           define_operator_c,
                           on_call<&ts_boxed::info, ts_boxed_info*>,
                           on_call<&ts_boxed::argument, int32_t, ts_value*>,
                           on_call<&ts_boxed::result, int32_t, ts_value*>,
                           on_call<&ts_boxed::describe, int64_t, ts_tensor*>,
                           on_call<&ts_boxed::place, int64_t, ts_place*>,
                           on_call<&ts_boxed::data, int64_t, void**>,
                           on_call<&ts_boxed::set_argument, int32_t, const ts_value*>,
                           on_call<&ts_boxed::redispatch>,
                           on_call<&ts_boxed::invoke, const char*, const ts_value*, int32_t, ts_value*, int32_t>,
                           on_call<&ts_boxed::empty, const int64_t*, int32_t, int32_t, int64_t, int64_t*>,
                           on_call<&ts_boxed::list, const int64_t*, int32_t, ts_value*>,
                           on_call<&ts_boxed::set_result, int32_t, const ts_value*>,
                           on_call<&ts_boxed::drop, int64_t>,
                           release_interpreter_c};

struct Install {
  Install() { set_dispatch_table(&table); }
} install;

} // namespace
} // namespace ts
