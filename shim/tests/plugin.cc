// SPDX-License-Identifier: Apache-2.0
// A library linked with the driver, as the tests load it: plainly, bound deeply,
// or into a namespace of its own.
#include <dlfcn.h>

#include "driver_declarations.h"

#define PLUGIN extern "C" __attribute__((visibility("default")))

PLUGIN void* plugin_linked() { return reinterpret_cast<void*>(&cuInit); }
PLUGIN CUresult plugin_init() { return cuInit(0); }
PLUGIN void* plugin_lookup(const char* name) { return dlsym(dlopen("libcuda.so.1", RTLD_NOW), name); }
