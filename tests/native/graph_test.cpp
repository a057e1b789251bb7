// Programs written down, checked, printed, read and run, without Python.
#include "dispatch/op_handles.h"
#include "graph/executor.h"
#include "graph/passes/passes.h"
#include "graph/tracer.h"
#include "harness.h"
#include "runtime/empty.h"
#include "toy_backend.h"

using namespace ts;

namespace {

Tensor filled(int64_t n, double value) { return ops::full(Dims{n}, Scalar(value), DType::Float64, toy_device()); }

graph::Graph record(const std::function<Tensor()>& program, std::span<const Tensor> inputs) {
  graph::Tracer tracer({[] { return std::string("program:1"); }, [](const std::string&) {}});
  for (const Tensor& t : inputs) tracer.add_input(t, "x");
  tracer.begin();
  Tensor out = program();
  return tracer.end({&out, 1});
}

double first_of(const graph::Graph& g, const Tensor& input) {
  return graph::Executor(g).run({&input, 1}, {}, nullptr)[0].data<double>()[0];
}

// x * x * 1 + x, with x * x twice and something that nobody sees.
graph::Graph program() {
  Tensor x = filled(3, 2.0);
  return record(
      [&] {
        ops::exp(x);
        return ops::add(ops::mul(ops::mul(x, x), 1.0), ops::mul(ops::mul(x, x), x));
      },
      {&x, 1});
}

} // namespace

TEST(graphs_run_on_other_inputs) {
  graph::Graph g = program();
  for (const graph::Graph& level : {graph::outer_level(g), graph::leaf_level(g)})
    CHECK_CLOSE(first_of(level, filled(5, 3.0)), 36, 0);
}

TEST(passes_leave_the_value_and_less_to_do) {
  graph::Graph g = graph::leaf_level(program()), small = graph::optimised(g, false);
  CHECK(g.nodes.size() == 6 && small.nodes.size() == 3);
  CHECK_CLOSE(first_of(small, filled(3, 3.0)), 36, 0);
}

TEST(texts_are_read_back) {
  std::string text = graph::to_text(program());
  CHECK(graph::to_text(graph::parse_text(text)) == text);
  for (size_t k = 0; k + 1 < text.size(); k += 7) // cut anywhere
    CHECK(!harness::error_of([&] { graph::parse_text(std::string_view(text).substr(0, k)); }).empty());
}

TEST(wrong_graphs_are_refused) {
  graph::Graph g = program();
  auto broken = [&](auto change, const char* part) {
    graph::Graph copy = g;
    change(copy);
    CHECK_ERROR(graph::verify(copy), part);
  };
  broken([](graph::Graph& c) { std::swap(c.nodes.front(), c.nodes.back()); }, "graph: node");
  broken([](graph::Graph& c) { c.outputs[0] = 1000; }, "an output, %1000, is not defined");
  broken([](graph::Graph& c) { c.nodes[0].n_args = 0; }, "expected 1 arguments, got 0");
  broken([](graph::Graph& c) { c.nodes[0].args = 1u << 30; }, "lie beyond");
  broken([](graph::Graph& c) { c.items[c.nodes[1].args].at = 999; }, "there is no %999");
  broken([](graph::Graph& c) { c.nodes[0].end = 0; }, "its parts end at 0");
}

TEST(a_write_is_seen_by_what_follows) {
  Tensor x = filled(2, 1.0);
  graph::Graph g = record(
      [&] {
        Tensor y = ops::mul(x, 2.0), before = ops::add(y, 1.0);
        ops::add_(y, 5.0);
        return ops::add(before, ops::add(y, 1.0));
      },
      {&x, 1});
  graph::Graph leaf = graph::leaf_level(g);
  CHECK_CLOSE(first_of(graph::share_equal(leaf), filled(2, 10.0)), 47, 0); // y + 1 is not y + 1 any more
  CHECK_CLOSE(first_of(graph::optimised(leaf, true), filled(2, 10.0)), 47, 0);
}

TEST(one_thread_writes_one_program) {
  graph::Tracer outer({[] { return std::string(); }, [](const std::string&) {}});
  outer.begin();
  CHECK_ERROR(record([] { return filled(1, 1.0); }, {}), "writes a program down already");
}

TEST(a_plan_runs_calls_that_the_card_has_worked_out_ahead) {
  const int prepared = toy_kernel_calls("prepared"), run = toy_kernel_calls("prepared run"),
            freed = toy_kernel_calls("freed");
  {
    const graph::Executor executor(graph::leaf_level(program()));
    for (double x : {1.0, 2.0, 3.0, 4.0}) { // the third by a plan
      Tensor input = filled(3, x);
      CHECK_CLOSE(executor.run({&input, 1}, {}, nullptr)[0].data<double>()[0], x * x + x * x * x, 0);
    }
    CHECK(toy_kernel_calls("prepared") > prepared && toy_kernel_calls("prepared run") > run);
  }
  CHECK(toy_kernel_calls("freed") - freed == toy_kernel_calls("prepared") - prepared);
}

TEST(a_card_compiles_what_it_claims) {
  auto run = [](double x) {
    const graph::Executor executor(graph::leaf_level(program()));
    Tensor input = filled(3, x), out;
    for (int k = 0; k < 4; ++k) out = executor.run({&input, 1}, {}, nullptr)[0];
    return out.data<double>()[0];
  };
  const int compiled = toy_kernel_calls("compiled"), parts = toy_kernel_calls("part");
  CHECK_CLOSE(run(3), 36, 0);
  CHECK(toy_kernel_calls("compiled") == compiled); // it declines
  toy_claims(1);
  CHECK_CLOSE(run(3), 36, 0);
  const int made = toy_kernel_calls("compiled") - compiled;
  CHECK(made >= 4 && toy_kernel_calls("part") == parts + 2 * made);
  CHECK(toy_kernel_calls("destroyed") == made);
  toy_claims(2);
  CHECK_CLOSE(run(3), 36, 0); // warned of
  toy_claims(0);
}
