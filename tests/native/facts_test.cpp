// What declarations say beyond schemas.
#include "harness.h"
#include "ops/common/facts.h"

using namespace ts;

TEST(facts_are_words_that_are_known) {
  CHECK_ERROR(note_facts("nothing", "zero sparkles"), "operator: 'nothing' says sparkles");
  CHECK_ERROR(note_facts("nothing", "autocast:lower/higher"), "says autocast:lower/higher");
  CHECK(says("zero stored:none", "stored:none") && says("zero", "zero"));
  CHECK(!says("zero stored:none", "stored") && !says("", "zero"));
  CHECK(says(facts_by_name().at("exp"), "elementwise") && says(facts_by_name().at("arcsin"), "alias:asin"));
}
