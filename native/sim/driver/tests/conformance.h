// SPDX-License-Identifier: Apache-2.0
// One conformance program for every implementation of the driver API. Each
// section runs in a process of its own and prints `section.key: value` lines;
// the lines of the simulated driver are compared with those of a real one
// (golden file), so that what a call returns was seen, not guessed.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

// cudaProfiler.h is in no package of headers.
extern "C" CUresult cuProfilerStart();
extern "C" CUresult cuProfilerStop();

namespace conformance {

struct Section {
  const char* name;
  void (*body)();
};

std::vector<Section>& sections();

struct Registrar {
  Registrar(const char* name, void (*body)()) { sections().push_back({name, body}); }
};

/// Name of the running section; the prefix of every line.
extern const char* current;

std::string error_name(CUresult code);
void line(const char* key, const std::string& value);
void result(const char* key, CUresult code);
void number(const char* key, long long value);
void result_number(const char* key, CUresult code, long long value);

/// cuInit, device 0, primary context made current. Ends the process on failure.
CUdevice start();
CUstream new_stream(unsigned flags = CU_STREAM_NON_BLOCKING);
CUmodule load(const char* ptx);
CUfunction function(CUmodule module, const char* name);
CUdeviceptr device_bytes(size_t size);

extern const char* const kBasicPtx;

}  // namespace conformance

#define SECTION(name)                                                            \
  static void section_##name();                                                  \
  static const ::conformance::Registrar registrar_##name(#name, section_##name); \
  static void section_##name()
#define R(key, call) ::conformance::result(key, (call))
