// SPDX-License-Identifier: Apache-2.0
#include "names.h"

#include <algorithm>
#include <cstring>

namespace tessera::ptx {

namespace {

uint64_t mix(uint64_t value) {
  value *= 0x9e3779b97f4a7c15u;
  return value ^ (value >> 29);
}

uint64_t hash_of(std::string_view text) {
  uint64_t hash = text.size();
  const char* at = text.data();
  size_t left = text.size();
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    hash = mix(hash ^ word);
  }
  uint64_t tail = 0;
  for (size_t i = 0; i < left; ++i) tail |= static_cast<uint64_t>(static_cast<uint8_t>(at[i])) << (8 * i);
  return mix(mix(hash ^ tail));
}

constexpr std::string_view kSpecials[] = {"%aggr_smem_size",
                                          "%clock",
                                          "%clock64",
                                          "%clock_hi",
                                          "%cluster_ctaid",
                                          "%cluster_ctarank",
                                          "%cluster_nctaid",
                                          "%cluster_nctarank",
                                          "%clusterid",
                                          "%ctaid",
                                          "%current_graph_exec",
                                          "%dynamic_smem_size",
                                          "%globaltimer",
                                          "%globaltimer_hi",
                                          "%globaltimer_lo",
                                          "%gridid",
                                          "%is_explicit_cluster",
                                          "%laneid",
                                          "%lanemask_eq",
                                          "%lanemask_ge",
                                          "%lanemask_gt",
                                          "%lanemask_le",
                                          "%lanemask_lt",
                                          "%nclusterid",
                                          "%nctaid",
                                          "%nsmid",
                                          "%ntid",
                                          "%nwarpid",
                                          "%reserved_smem_offset_0",
                                          "%reserved_smem_offset_1",
                                          "%reserved_smem_offset_begin",
                                          "%reserved_smem_offset_cap",
                                          "%reserved_smem_offset_end",
                                          "%smid",
                                          "%tid",
                                          "%total_smem_size",
                                          "%warpid"};

bool is_number_below(std::string_view text, unsigned limit) {
  if (text.empty() || text.size() > 2 || (text.size() == 2 && text[0] == '0')) return false;
  unsigned value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
    value = value * 10 + static_cast<unsigned>(c - '0');
  }
  return value < limit;
}

}  // namespace

bool is_special_register(std::string_view name) {
  if (std::find(std::begin(kSpecials), std::end(kSpecials), name) != std::end(kSpecials)) return true;
  if (name.starts_with("%envreg")) return is_number_below(name.substr(7), 32);
  if (!name.starts_with("%pm")) return false;
  name.remove_prefix(3);
  if (name.ends_with("_64")) name.remove_suffix(3);
  return is_number_below(name, 8);
}

NameTable::NameTable(Arena& arena) : arena_(arena), slots_(1024) {}

size_t NameTable::slot_of(std::string_view text, uint64_t hash) const {
  size_t slot = hash & (slots_.size() - 1);
  while (slots_[slot] != nullptr && !(slots_[slot]->hash == hash && slots_[slot]->text == text)) {
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slot;
}

Name* NameTable::find(std::string_view text) const { return slots_[slot_of(text, hash_of(text))]; }

Name* NameTable::intern(std::string_view text) {
  const uint64_t hash = hash_of(text);
  const size_t slot = slot_of(text, hash);
  if (slots_[slot] != nullptr) return slots_[slot];
  Name& name = names_.emplace_back();
  name.text = arena_.copy(text);
  name.hash = hash;
  name.id = static_cast<uint32_t>(names_.size() - 1);
  slots_[slot] = &name;
  if (names_.size() * 2 > slots_.size()) grow();
  return &name;
}

void NameTable::grow() {
  slots_.assign(slots_.size() * 2, nullptr);
  for (Name& name : names_) {
    size_t slot = name.hash & (slots_.size() - 1);
    while (slots_[slot] != nullptr) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = &name;
  }
}

}  // namespace tessera::ptx
