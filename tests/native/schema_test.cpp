#include "dispatch/operator.h"
#include "harness.h"

using namespace ts;

TEST(schema_round_trips) {
  for (const char* text :
       {"sum.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
        "max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
        "add_(Tensor(a!) self, Operand other, *, Scalar alpha=1) -> Tensor(a!)",
        "index(Tensor self, Tensor?[] indices) -> Tensor", "gelu(Tensor self, *, str approximate='none') -> Tensor",
        "pool(Tensor self, int[2] kernel_size, int[2] stride=[], float eps=1e-05) -> ()"})
    CHECK(to_string(*parse_schema(text)) == text);
}

TEST(every_declared_schema_round_trips) {
  for (const Operator* op : all_operators())
    CHECK(to_string(*parse_schema(to_string(*op->schema))) == to_string(*op->schema));
}

TEST(schema_defaults_have_values) {
  auto s =
      parse_schema("f(Tensor x, int[2] stride=1, float p=0.5, str mode='sum', bool b=True, int? n=None) -> Tensor");
  CHECK(same(s->args[1].default_value.as_ints(), Dims{1, 1}));
  CHECK(s->args[2].default_value.f == 0.5);
  CHECK(std::string(s->args[3].default_value.str) == "sum");
  CHECK(s->args[4].default_value.i == 1);
  CHECK(s->args[5].default_value.is_none());
}

TEST(malformed_schemas_name_the_place) {
  CHECK_ERROR(parse_schema("f(Tensor x"), "schema: expected");
  CHECK_ERROR(parse_schema("f(Thing x) -> Tensor"), "a type instead of Thing");
  CHECK_ERROR(parse_schema("f(Tensor x) -> Tensor extra junk"), "the end");
  CHECK_ERROR(parse_schema(""), "a name");
}

TEST(every_operator_is_documented) {
  for (const Operator* op : all_operators())
    if (!op->hidden && op->variant == Variant::Functional)
      CHECK(!op->doc.empty() || (std::cerr << op->name() << " has no doc\n", false));
}
