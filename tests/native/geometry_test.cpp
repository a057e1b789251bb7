#include "harness.h"
#include "tensor/geometry.h"

using namespace ts;

TEST(view_strides_follow_numpy) {
  CHECK(*view_strides(Dims{2, 3, 4}, Dims{12, 4, 1}, Dims{6, 4}) == (Dims{4, 1}));
  CHECK(*view_strides(Dims{2, 3, 4}, Dims{12, 4, 1}, Dims{2, 12}) == (Dims{12, 1}));
  CHECK(*view_strides(Dims{4, 3}, Dims{6, 2}, Dims{12}) == (Dims{2})); // every other element
  CHECK(!view_strides(Dims{3, 4}, Dims{1, 3}, Dims{12}));              // transposed
  CHECK(*view_strides(Dims{}, Dims{}, Dims{1, 1}) == (Dims{1, 1}));
  CHECK(view_strides(Dims{0, 3}, Dims{3, 1}, Dims{3, 0}));
  CHECK(*view_strides(Dims{5, 1, 2}, Dims{2, 77, 1}, Dims{10}) == (Dims{1}));
}

TEST(broadcasting_aligns_at_the_end) {
  CHECK(broadcast_sizes(Dims{3, 1}, Dims{4}, "t") == (Dims{3, 4}));
  CHECK(broadcast_sizes(Dims{}, Dims{2, 0}, "t") == (Dims{2, 0}));
  CHECK(broadcast_sizes(Dims{1}, Dims{0}, "t") == (Dims{0}));
  CHECK_ERROR(broadcast_sizes(Dims{2, 3}, Dims{4}, "op"),
              "op: The size of tensor a (3) must match the size of tensor b (4)");
}

TEST(overlap_is_seen) {
  CHECK(may_overlap(Dims{3, 2}, Dims{0, 1}));
  CHECK(may_overlap(Dims{4, 3}, Dims{1, 1}));
  CHECK(!may_overlap(Dims{4, 3}, Dims{3, 1}));
  CHECK(!may_overlap(Dims{4, 3}, Dims{-3, 1}));
  CHECK(!may_overlap(Dims{1, 3}, Dims{0, 1}));
  CHECK(!may_overlap(Dims{0, 3}, Dims{0, 0}));
}

TEST(dense_means_some_order_is_contiguous) {
  CHECK(is_dense(Dims{2, 3}, Dims{1, 2}));
  CHECK(!is_dense(Dims{2, 3}, Dims{1, 3}));
  CHECK(is_dense(Dims{2, 1, 3}, Dims{3, 50, 1}));
}

TEST(sizes_are_checked) {
  CHECK_ERROR(checked_numel(Dims{2, -1}), "not negative");
  CHECK_ERROR(checked_numel(Dims{int64_t{1} << 40, int64_t{1} << 40}), "64 bits");
  CHECK(checked_numel(Dims{int64_t{1} << 40, int64_t{1} << 40, 0}) == 0);
  CHECK(infer_size(Dims{-1, 4}, 12, "view") == (Dims{3, 4}));
  CHECK_ERROR(infer_size(Dims{-1, 5}, 12, "view"), "is invalid for input of size 12");
  CHECK_ERROR(infer_size(Dims{-1, -1}, 12, "view"), "only one dimension");
  CHECK_ERROR(byte_extent(Dims{3}, Dims{INT64_MAX}, 8), "64-bit addresses");
}
