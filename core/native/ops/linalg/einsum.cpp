// Sums of products named by letters, and the products that are special cases of it.
#include "dispatch/op_handles.h"
#include "ops/common/declare.h"
#include "ops/common/raw.h"
#include "tensor/geometry.h"
#include <array>
#include <string>

namespace ts {
namespace {

// Letters a-z and A-Z are labels 0-51; the dims an ellipsis stands for follow, numbered from the right.
constexpr int kLetters = 52;
int label_of(char c) { return c >= 'a' && c <= 'z' ? c - 'a' : c >= 'A' && c <= 'Z' ? c - 'A' + 26 : -1; }

using Labels = SmallVector<int, 8>;

struct Equation {
  std::vector<Labels> operands;
  Labels output;
  int ellipsis = 0; // most dims an ellipsis stands for
};

Labels parse_term(std::string_view text, int64_t ndim, bool is_output, int& ellipsis) {
  Labels out;
  int letters = 0;
  bool dots = false;
  for (char c : text) letters += label_of(c) >= 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    if (text[i] != '.') {
      int label = label_of(text[i]);
      TS_CHECK(label >= 0, "einsum(): invalid subscript given: ", text[i], " in '", text,
               "', subscripts must be in [a-zA-Z]");
      out.push_back(label);
      continue;
    }
    TS_CHECK(text.substr(i, 3) == "..." && !dots, "einsum(): found '.' in '", text,
             "' that is not part of one ellipsis");
    dots = true;
    i += 2;
    int covered = is_output ? ellipsis : static_cast<int>(ndim) - letters;
    TS_CHECK(covered >= 0, "einsum(): '", text, "' names more dimensions than the operand's ", ndim);
    if (!is_output) ellipsis = std::max(ellipsis, covered);
    for (int k = covered; k-- > 0;) out.push_back(kLetters + k);
  }
  if (!is_output)
    TS_CHECK(static_cast<int64_t>(out.size()) == ndim, "einsum(): the number of subscripts in '", text, "' (",
             out.size(), ") does not match the operand's ", ndim, " dimensions");
  return out;
}

Equation parse(std::string_view text, TensorList operands) {
  Equation e;
  size_t arrow = text.find("->");
  std::string_view left = text.substr(0, arrow);
  for (size_t k = 0;; ++k) {
    size_t comma = left.find(',');
    TS_CHECK(k < operands.size(), "einsum(): more operands in the equation '", text, "' than the ", operands.size(),
             " given");
    e.operands.push_back(parse_term(left.substr(0, comma), operands[k].ndim(), false, e.ellipsis));
    if (comma == std::string_view::npos) break;
    left = left.substr(comma + 1);
  }
  TS_CHECK(e.operands.size() == operands.size(), "einsum(): fewer operands in the equation '", text, "' than the ",
           operands.size(), " given");
  if (arrow != std::string_view::npos) {
    e.output = parse_term(text.substr(arrow + 2), 0, true, e.ellipsis);
  } else { // the ellipsis, then letters that occur once, in alphabetical order (capitals first)
    for (int k = e.ellipsis; k-- > 0;) e.output.push_back(kLetters + k);
    std::array<int, kLetters> count{};
    for (const Labels& term : e.operands)
      for (int label : term)
        if (label < kLetters) ++count[static_cast<size_t>(label)];
    for (int k = 0; k < kLetters; ++k) {
      int label = (k + 26) % kLetters;
      if (count[static_cast<size_t>(label)] == 1) e.output.push_back(label);
    }
  }
  TS_CHECK(kLetters + e.ellipsis < 64, "einsum(): an ellipsis stands for too many dimensions (", e.ellipsis, ")");
  uint64_t seen = 0, known = 0;
  for (const Labels& term : e.operands)
    for (int label : term) known |= uint64_t{1} << label;
  for (int label : e.output) {
    TS_CHECK(!(seen >> label & 1), "einsum(): output subscript appears more than once in the output of '", text, "'");
    TS_CHECK(known >> label & 1 || label >= kLetters,
             "einsum(): output subscript does not appear in the equation for any input operand, in '", text, "'");
    seen |= uint64_t{1} << label;
  }
  return e;
}

// An operand with one dim per label, sorted by label.
struct Term {
  Tensor tensor;
  Labels labels;
  uint64_t set() const {
    uint64_t s = 0;
    for (int l : labels) s |= uint64_t{1} << l;
    return s;
  }
};

// Repeated labels become diagonals.
Term without_repeats(const Tensor& operand, const Labels& labels) {
  Term t{operand, labels};
  for (size_t i = 0; i < t.labels.size(); ++i)
    for (size_t j = i + 1; j < t.labels.size();) {
      if (t.labels[i] != t.labels[j]) {
        ++j;
        continue;
      }
      int64_t a = t.tensor.sizes()[i], b = t.tensor.sizes()[j];
      TS_CHECK(a == b, "einsum(): a repeated subscript needs dimensions of one size, got ", a, " and ", b);
      t.tensor = ops::diagonal(t.tensor, int64_t{0}, static_cast<int64_t>(i), static_cast<int64_t>(j)); // moves it last
      int label = t.labels[i];
      t.labels.erase(t.labels.begin() + j);
      t.labels.erase(t.labels.begin() + i);
      t.labels.push_back(label);
      j = i + 1;
    }
  return t;
}

// The dims of these labels in this order; those missing become size one.
Tensor arranged(const Term& t, std::initializer_list<const Labels*> groups) {
  Dims order, sizes;
  uint64_t have = t.set();
  for (const Labels* group : groups)
    for (int label : *group) {
      if (!(have >> label & 1)) {
        sizes.push_back(1);
        continue;
      }
      size_t at = static_cast<size_t>(std::find(t.labels.begin(), t.labels.end(), label) - t.labels.begin());
      order.push_back(static_cast<int64_t>(at));
      sizes.push_back(t.tensor.sizes()[at]);
    }
  Tensor permuted = ops::permute(t.tensor, order);
  return same(permuted.sizes(), sizes) ? permuted : ops::reshape(permuted, sizes);
}

Term sum_out(Term t, uint64_t wanted) {
  Dims dims;
  Labels kept;
  for (size_t d = 0; d < t.labels.size(); ++d) {
    if (wanted >> t.labels[d] & 1)
      kept.push_back(t.labels[d]);
    else
      dims.push_back(static_cast<int64_t>(d));
  }
  if (dims.empty()) return t;
  return {ops::sum_dim(t.tensor, dims), kept};
}

int64_t size_of(const Term& t, int label) {
  for (size_t d = 0; d < t.labels.size(); ++d)
    if (t.labels[d] == label) return t.tensor.sizes()[d];
  return 1;
}
int64_t einsum_product(const Dims& sizes) { return checked_numel(sizes); }

uint64_t set_of(const Labels& labels) {
  uint64_t s = 0;
  for (int l : labels) s |= uint64_t{1} << l;
  return s;
}

// One pair as a stack of matrix products: labels in both and wanted are the stack, in both and not wanted are summed.
// Each group goes in the given order of labels, so that the result has PyTorch's strides: programs view it.
Term contract(Term a, Term b, uint64_t wanted, const Labels& order) {
  uint64_t in_a = a.set(), in_b = b.set();
  a = sum_out(a, wanted | in_b);
  b = sum_out(b, wanted | in_a);
  if (a.tensor.dtype() != b.tensor.dtype()) { // a sum of small integers is wider
    DType t = promote_types(a.tensor.dtype(), b.tensor.dtype());
    a.tensor = ops::to_dtype(a.tensor, t), b.tensor = ops::to_dtype(b.tensor, t);
  }
  in_a = a.set(), in_b = b.set();
  Labels stack, summed, left, right, all;
  Dims stack_sizes, left_sizes, right_sizes, summed_sizes, all_sizes;
  for (int label : order) {
    uint64_t bit = uint64_t{1} << label;
    if (!((in_a | in_b) & bit)) continue;
    int64_t sa = size_of(a, label), sb = size_of(b, label), size = sa == 1 ? sb : sa;
    TS_CHECK(sa == sb || sa == 1 || sb == 1, "einsum(): operands do not broadcast: a subscript has sizes ", sa, " and ",
             sb);
    // A dim of size one in one operand only repeats: it belongs to the other alone.
    bool both = (in_a & bit) && (in_b & bit) && sa == sb;
    if (both && !(wanted & bit))
      summed.push_back(label), summed_sizes.push_back(size);
    else if (both)
      stack.push_back(label), stack_sizes.push_back(size);
    else if ((in_a & bit) && sa == size)
      left.push_back(label), left_sizes.push_back(size);
    else
      right.push_back(label), right_sizes.push_back(size);
  }
  auto drop_ones = [](Term& t, const Labels& elsewhere) {
    Dims dims;
    Labels kept;
    for (size_t d = 0; d < t.labels.size(); ++d) {
      bool gone = std::find(elsewhere.begin(), elsewhere.end(), t.labels[d]) != elsewhere.end();
      if (gone)
        dims.push_back(static_cast<int64_t>(d));
      else
        kept.push_back(t.labels[d]);
    }
    if (!dims.empty()) t = {ops::squeeze(t.tensor, dims), kept};
  };
  drop_ones(a, right);
  drop_ones(b, left);
  if (einsum_product(summed_sizes) == 1) { // nothing is summed: a product of elements, laid out as one
    drop_ones(a, summed);
    drop_ones(b, summed);
    uint64_t rest = (in_a | in_b) & ~set_of(summed);
    for (int label : order)
      if (rest >> label & 1) all.push_back(label);
    return sum_out({ops::mul(arranged(a, {&all}), arranged(b, {&all})), all}, wanted);
  }
  int64_t s = einsum_product(stack_sizes), m = einsum_product(left_sizes), k = einsum_product(summed_sizes),
          n = einsum_product(right_sizes);
  int64_t a_sizes[] = {s, m, k}, b_sizes[] = {s, k, n};
  Tensor x = ops::reshape(arranged(a, {&stack, &left, &summed}), IntSpan(a_sizes));
  Tensor y = ops::reshape(arranged(b, {&stack, &summed, &right}), IntSpan(b_sizes));
  for (const Labels* group : {&stack, &left, &right})
    for (int label : *group) all.push_back(label);
  for (const Dims* group : {&stack_sizes, &left_sizes, &right_sizes})
    for (int64_t size : *group) all_sizes.push_back(size);
  Tensor out = ops::reshape(ops::bmm(x, y), all_sizes);
  return sum_out({out, all}, wanted);
}

Tensor einsum(const char* equation, TensorList operands) {
  TS_CHECK_VALUE(!operands.empty(), "einsum(): must provide at least one operand");
  Equation e = parse(equation, operands);
  uint64_t wanted = set_of(e.output);
  Labels order = e.output;
  for (int label = 0; label < 64; ++label)
    if (!(wanted >> label & 1)) order.push_back(label);
  Term left = without_repeats(operands[0], e.operands[0]);
  for (size_t k = 1; k < operands.size(); ++k) {
    uint64_t later = wanted;
    for (size_t j = k + 1; j < operands.size(); ++j) later |= set_of(e.operands[j]);
    left = contract(left, without_repeats(operands[k], e.operands[k]), later, order);
  }
  left = sum_out(left, wanted);
  return arranged(left, {&e.output});
}

// --- special cases ---------------------------------------------------------------------------------------------------

Tensor tensordot(const Tensor& first, const Tensor& second, IntSpan dims_a, IntSpan dims_b) {
  TS_CHECK(dims_a.size() == dims_b.size(), "tensordot: both dimension lists should have same length, got ", dims_a,
           " and ", dims_b);
  Tensor a = first, b = second;
  for (size_t i = 0; i < dims_a.size(); ++i) { // a dim of size 1 broadcasts: the other's is summed
    int64_t d = wrap_dim(dims_a[i], a.ndim(), "tensordot"), e = wrap_dim(dims_b[i], b.ndim(), "tensordot");
    if (a.size(d) == b.size(e)) continue;
    if (a.size(d) == 1) b = ops::sum_dim(b, IntSpan(&e, 1), true, b.dtype());
    if (b.size(e) == 1) a = ops::sum_dim(a, IntSpan(&d, 1), true, a.dtype());
  }
  auto order = [](const Tensor& t, IntSpan summed, bool summed_last, Dims& kept) {
    Dims inner, outer;
    for (int64_t d : summed) inner.push_back(wrap_dim(d, t.ndim(), "tensordot"));
    for (int64_t d = 0; d < t.ndim(); ++d)
      if (std::find(inner.begin(), inner.end(), d) == inner.end()) outer.push_back(d), kept.push_back(t.size(d));
    TS_CHECK(inner.size() + outer.size() == static_cast<size_t>(t.ndim()), "tensordot: a dim appears twice in ",
             summed);
    Dims out = summed_last ? outer : inner;
    for (int64_t d : summed_last ? inner : outer) out.push_back(d);
    return out;
  };
  Dims kept_a, kept_b;
  Dims order_a = order(a, dims_a, true, kept_a), order_b = order(b, dims_b, false, kept_b);
  int64_t k = 1;
  for (size_t i = 0; i < dims_a.size(); ++i) {
    int64_t x = a.size(dims_a[i]), y = b.size(dims_b[i]);
    TS_CHECK(x == y, "tensordot: contracted dimensions need to match, but first has size ", x, " in dim ", dims_a[i],
             " and second has size ", y, " in dim ", dims_b[i]);
    k *= x;
  }
  int64_t rows[] = {einsum_product(kept_a), k}, columns[] = {k, einsum_product(kept_b)};
  Tensor left = ops::permute(a, order_a), right = ops::permute(b, order_b), out;
  static const Op scalar_product("dot"); // which autocast leaves in its dtype, as in PyTorch
  if (rows[0] == 1 && columns[1] == 1)
    out = scalar_product(ops::reshape(left, Dims{-1}), ops::reshape(right, Dims{-1}));
  else
    out = ops::mm(ops::reshape(left, IntSpan(rows)), ops::reshape(right, IntSpan(columns)));
  for (int64_t s : kept_b) kept_a.push_back(s);
  return ops::reshape(out, kept_a);
}
Tensor tensordot_count(const Tensor& a, const Tensor& b, int64_t dims) {
  TS_CHECK(dims >= 0 && dims <= a.ndim() && dims <= b.ndim(), "tensordot: expects dims >= 0 and not above the ranks ",
           a.ndim(), " and ", b.ndim(), ", but got dims=", dims);
  Dims last, first;
  for (int64_t d = 0; d < dims; ++d) last.push_back(a.ndim() - dims + d), first.push_back(d);
  return tensordot(a, b, last, first);
}

Tensor kron(const Tensor& a, const Tensor& b) {
  int64_t n = std::max(a.ndim(), b.ndim());
  Dims x, y, sizes;
  for (int64_t d = 0; d < n; ++d) {
    int64_t sa = d + a.ndim() >= n ? a.size(d + a.ndim() - n) : 1,
            sb = d + b.ndim() >= n ? b.size(d + b.ndim() - n) : 1;
    for (auto [dims, first, second] : {std::tuple{&x, sa, int64_t{1}}, {&y, int64_t{1}, sb}})
      dims->push_back(first), dims->push_back(second);
    int64_t size;
    TS_CHECK(!__builtin_mul_overflow(sa, sb, &size), "kron: sizes overflow, got ", a.sizes(), " and ", b.sizes());
    sizes.push_back(size);
  }
  checked_numel(sizes);
  return ops::reshape(ops::mul(ops::reshape(a, x), ops::reshape(b, y)), sizes);
}

Tensor chain_matmul(TensorList matrices) {
  TS_CHECK(!matrices.empty(), "chain_matmul: Expected one or more matrices");
  Tensor out = matrices[0];
  for (size_t k = 1; k < matrices.size(); ++k) out = ops::mm(out, matrices[k]);
  return out;
}

} // namespace

TS_OPERATORS(einsum) {
  def("einsum(str equation, Tensor[] tensors) -> Tensor")
      .facts("autocast:-/lower")
      .body<einsum>()
      .function_only()
      .doc("Sums of products by Einstein's convention: one letter per dim, '->' names the result's dims, '...' stands "
           "for the rest; letters left out are summed.");
  def("tensordot(Tensor self, Tensor other, int dims=2) -> Tensor")
      .facts("autocast:-/widest")
      .body<tensordot_count>()
      .function_only()
      .out(kSameDtype)
      .doc("Products summed over the last dims of self and the first of other.");
  def("tensordot.dims(Tensor self, Tensor other, int[] dims_self, int[] dims_other) -> Tensor")
      .body<tensordot>()
      .function_only()
      .out(kSameDtype)
      .doc("Products summed over pairs of dims.");
  def("kron(Tensor self, Tensor other) -> Tensor")
      .body<kron>()
      .out()
      .doc("Kronecker product: each element of self times all of other, as blocks.");
  def("chain_matmul(Tensor[] matrices) -> Tensor")
      .body<chain_matmul>()
      .function_only()
      .doc("The product of matrices, from the left.");
}

} // namespace ts
