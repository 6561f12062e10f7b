// SPDX-License-Identifier: Apache-2.0
// How fast the simulated GPU executes, on one core: lane-instructions a second of
// plain arithmetic, and floating-point operations a second of mma.sync. Medians of
// repeated runs.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "support.h"

namespace {

using namespace tessera;
using tessera::sim::testing::TestMemory;

std::string kernel(const std::string& registers, const std::string& body) {
  return ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {\n.reg .pred %p; .reg .b32 %i;\n" +
         registers + "mov.u32 %i, 0;\nL:\n" + body + "add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 2000; @%p bra L; ret; }\n";
}

std::string arithmetic() {
  std::string body;
  for (int i = 0; i < 8; ++i) {
    const std::string r = std::to_string(i % 4);
    body += "mad.lo.u32 %r" + r + ", %r" + r + ", %i, %i;\nxor.b32 %r" + r + ", %r" + r + ", %i;\n";
    body += "fma.rn.f32 %f" + r + ", %f" + r + ", 0f3F800001, 0f3F000000;\nmin.s32 %s" + r + ", %r" + r + ", %i;\n";
  }
  return kernel(".reg .b32 %r<4>, %s<4>; .reg .f32 %f<4>;\n", body);
}

std::string matrix() {
  std::string body;
  for (int i = 0; i < 4; ++i) {
    const std::string c = "{%c" + std::to_string(4 * i) + ", %c" + std::to_string(4 * i + 1) + ", %c" +
                          std::to_string(4 * i + 2) + ", %c" + std::to_string(4 * i + 3) + "}";
    body +=
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 " + c + ", {%a0, %a1, %a2, %a3}, {%b0, %b1}, " + c + ";\n";
  }
  return kernel(".reg .b32 %a<4>, %b<2>; .reg .f32 %c<16>;\n", body);
}

/// The median over runs of `work(outcome)` per second.
template <class Measure>
double median_rate(const std::string& text, Measure&& work) {
  const ptx::ParseResult parsed = ptx::parse(text);
  TestMemory memory;
  const auto program = sim::load({&parsed.module}, memory, {});
  sim::Launch launch;
  launch.grid = {4, 1, 1};
  launch.block = {128, 1, 1};
  const std::vector<uint8_t> no_parameters(16);
  launch.parameters = no_parameters.data();
  std::vector<double> rates;
  for (int run = 0; run < 9; ++run) {
    const auto began = std::chrono::steady_clock::now();
    const sim::LaunchOutcome outcome = program->find_kernel("k")->run(launch, memory);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    if (outcome.fault.kind != sim::Fault::Kind::kNone) {
      std::fprintf(stderr, "%s\n", outcome.fault.message.c_str());
      std::exit(1);
    }
    if (run > 0) rates.push_back(static_cast<double>(work(outcome.work)) / took.count());
  }
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() / 2];
}

}  // namespace

int main() {
  const double lanes = median_rate(arithmetic(), [](const sim::Work& work) { return work.lane_instructions; });
  const double flops = median_rate(matrix(), [](const sim::Work& work) { return work.tensor_flops_f16; });
  std::printf("arithmetic: %.0f million lane-instructions/s\nmma.sync f16: %.1f GFLOP/s\n", lanes / 1e6, flops / 1e9);
  return lanes > 0 && flops > 0 ? 0 : 1;
}
