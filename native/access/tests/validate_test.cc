// SPDX-License-Identifier: Apache-2.0
#include "blob_builder.h"
#include "testing/check.h"

namespace {

using tessera::access::testing::BlobBuilder;
using tessera::access::testing::elementwise;

int validate(const std::vector<uint64_t>& blob) { return ts_summary_validate(blob.data(), blob.size() * 8); }

template <class Change>
int validate_changed(Change change) {
  BlobBuilder builder = elementwise(2);
  change(builder);
  return validate(builder.build());
}

}  // namespace

TEST_CASE(accepts_a_summary) { CHECK_EQ(validate(elementwise(3).build()), TS_EVALUATE_OK); }

TEST_CASE(accepts_an_empty_summary) { CHECK_EQ(validate(BlobBuilder(0).build()), TS_EVALUATE_OK); }

TEST_CASE(refuses_every_truncation) {
  const std::vector<uint64_t> blob = elementwise(2).build();
  const size_t size = elementwise(2).build().size() * 8;
  for (size_t cut = 0; cut < size; ++cut) CHECK_EQ(ts_summary_validate(blob.data(), cut), TS_EVALUATE_MALFORMED);
}

TEST_CASE(refuses_a_misaligned_blob) {
  std::vector<uint64_t> blob = elementwise(2).build();
  const size_t size = blob.size() * 8;
  blob.push_back(0);
  auto* bytes = reinterpret_cast<uint8_t*>(blob.data());
  std::memmove(bytes + 4, bytes, size);
  CHECK_EQ(ts_summary_validate(bytes + 4, size), TS_EVALUATE_MALFORMED);
}

TEST_CASE(refuses_a_null_blob) { CHECK_EQ(ts_summary_validate(nullptr, 100), TS_EVALUATE_MALFORMED); }

TEST_CASE(refuses_foreign_headers) {
  CHECK_EQ(validate_changed([](BlobBuilder& b) { b.header.magic ^= 1; }), TS_EVALUATE_MALFORMED);
  CHECK_EQ(validate_changed([](BlobBuilder& b) { b.header.version = TS_SUMMARY_VERSION + 1; }), TS_EVALUATE_MALFORMED);
  CHECK_EQ(validate_changed([](BlobBuilder& b) { b.header.properties = 1u << 16; }), TS_EVALUATE_MALFORMED);
  CHECK_EQ(validate_changed([](BlobBuilder& b) { b.header.parameter_block_size = 1u << 21; }), TS_EVALUATE_MALFORMED);
}

TEST_CASE(refuses_nodes_that_do_not_hold) {
  CHECK_EQ(validate_changed([](BlobBuilder& b) { b.node(99); }), TS_EVALUATE_MALFORMED);
  CHECK_EQ(validate_changed([](BlobBuilder& b) { b.node(TS_OP_NEG, static_cast<int32_t>(b.nodes.size())); }),
           TS_EVALUATE_MALFORMED);  // its own operand
  CHECK_EQ(validate_changed([](BlobBuilder& b) { b.node(TS_OP_ADD, 0, -1); }), TS_EVALUATE_MALFORMED);
  CHECK_EQ(validate_changed([](BlobBuilder& b) { b.node(TS_OP_SELECT, 0, 0, TS_NO_NODE); }), TS_EVALUATE_MALFORMED);
  CHECK_EQ(validate_changed([](BlobBuilder& b) { b.node(TS_OP_GRID, 3); }), TS_EVALUATE_MALFORMED);
  CHECK_EQ(validate_changed([](BlobBuilder& b) { b.node(TS_OP_WRAP, 0, 64, 0); }), TS_EVALUATE_MALFORMED);
  CHECK_EQ(validate_changed([](BlobBuilder& b) { b.node(TS_OP_PARAMETER, 0, 3, 0); }), TS_EVALUATE_MALFORMED);
  CHECK_EQ(validate_changed([](BlobBuilder& b) { b.node(TS_OP_PARAMETER, 17, 4, 0); }), TS_EVALUATE_MALFORMED);
  CHECK_EQ(validate_changed([](BlobBuilder& b) { b.node(TS_OP_PARAMETER, -4, 4, 0); }), TS_EVALUATE_MALFORMED);
}

TEST_CASE(refuses_accesses_that_do_not_hold) {
  CHECK_EQ(validate_changed([](BlobBuilder& b) { b.access(16, 0, 0); }), TS_EVALUATE_MALFORMED);
  CHECK_EQ(validate_changed([](BlobBuilder& b) { b.access(0, 0, TS_NO_NODE); }), TS_EVALUATE_MALFORMED);
  CHECK_EQ(validate_changed([](BlobBuilder& b) { b.level(0, TS_NO_NODE); }), TS_EVALUATE_MALFORMED);
  CHECK_EQ(validate_changed([](BlobBuilder& b) { b.accesses[0].n_levels = 4; }), TS_EVALUATE_MALFORMED);
  CHECK_EQ(validate_changed([](BlobBuilder& b) { b.accesses[0].pitch[1] = 0; }), TS_EVALUATE_MALFORMED);
  CHECK_EQ(validate_changed([](BlobBuilder& b) { b.level(0, 0); }), TS_EVALUATE_OK);
  CHECK_EQ(validate_changed([](BlobBuilder& b) { b.access(0, 0, -1); }), TS_EVALUATE_MALFORMED);
  CHECK_EQ(validate_changed([](BlobBuilder& b) { b.access(0, 0, 0, 0); }), TS_EVALUATE_MALFORMED);
  CHECK_EQ(validate_changed([](BlobBuilder& b) { b.access(0, 0, 0, 4); }), TS_EVALUATE_MALFORMED);
  CHECK_EQ(validate_changed([](BlobBuilder& b) { b.access(0, 0, 0, TS_ACCESS_READ, TS_ACCESS_MUST_WRITE); }),
           TS_EVALUATE_MALFORMED);
  CHECK_EQ(validate_changed([](BlobBuilder& b) {
             b.access(0, TS_NO_NODE, TS_NO_NODE, TS_ACCESS_WRITE, TS_ACCESS_UNBOUNDED | TS_ACCESS_MUST_WRITE);
           }),
           TS_EVALUATE_MALFORMED);
  CHECK_EQ(validate_changed([](BlobBuilder& b) { b.access(0, 0, 0, TS_ACCESS_READ, 0, 1000); }), TS_EVALUATE_MALFORMED);
  CHECK_EQ(validate_changed(
               [](BlobBuilder& b) { b.access(0, TS_NO_NODE, TS_NO_NODE, TS_ACCESS_READ, TS_ACCESS_UNBOUNDED); }),
           TS_EVALUATE_OK);
  CHECK_EQ(validate_changed([](BlobBuilder& b) {
             b.access(0, TS_NO_NODE, TS_NO_NODE, TS_ACCESS_READ, TS_ACCESS_UNBOUNDED | TS_ACCESS_MAYBE);
           }),
           TS_EVALUATE_OK);
  CHECK_EQ(validate_changed([](BlobBuilder& b) {
             b.access(0, TS_NO_NODE, TS_NO_NODE, TS_ACCESS_READ, TS_ACCESS_UNBOUNDED | TS_ACCESS_ANYTHING);
           }),
           TS_EVALUATE_OK);
  CHECK_EQ(validate_changed([](BlobBuilder& b) { b.access(0, 0, 0, TS_ACCESS_READ, TS_ACCESS_ANYTHING); }),
           TS_EVALUATE_MALFORMED);
}

TEST_CASE(holds_the_limits) {
  const auto many_nodes = [](int count) {
    BlobBuilder builder(8);
    for (int i = 0; i < count; ++i) builder.constant(i);
    return validate(builder.build());
  };
  CHECK_EQ(many_nodes(TS_SUMMARY_MAX_NODES), TS_EVALUATE_OK);
  CHECK_EQ(many_nodes(TS_SUMMARY_MAX_NODES + 1), TS_EVALUATE_MALFORMED);
  const auto many_accesses = [](int count) {
    BlobBuilder builder(8);
    builder.constant(0);
    for (int i = 0; i < count; ++i) builder.access(0, 0, 0);
    return validate(builder.build());
  };
  CHECK_EQ(many_accesses(TS_SUMMARY_MAX_ACCESSES), TS_EVALUATE_OK);
  CHECK_EQ(many_accesses(TS_SUMMARY_MAX_ACCESSES + 1), TS_EVALUATE_MALFORMED);
}
