// SPDX-License-Identifier: Apache-2.0
// Green contexts for a driver that has none, to be preloaded behind the shim: as a driver gives them out, but with
// all of the device's resources. A green context is a small object, converted it is the primary context.
#include <dlfcn.h>
#include <stdlib.h>

typedef int (*Retain)(void**, int);
typedef int (*Create)(void**, unsigned);
struct Green {
  void* context;
  int device;
};

static void* real(const char* name) { return dlsym(dlopen("libcuda.so.1", RTLD_NOW), name); }

// By this name the shim knows that its calls are to go through here.
int cuInit(unsigned flags) { return ((int (*)(unsigned))real("cuInit"))(flags); }

int cuGreenCtxCreate(struct Green** green, void* resources, int device, unsigned flags) {
  (void)resources;
  if (green == NULL || flags != 1) return 1;
  *green = malloc(sizeof(struct Green));
  (*green)->device = device;
  return ((Retain)real("cuDevicePrimaryCtxRetain"))(&(*green)->context, device);
}

int cuCtxFromGreenCtx(void** context, struct Green* green) {
  *context = green->context;
  return 0;
}

int cuGreenCtxStreamCreate(void** stream, struct Green* green, unsigned flags, int priority) {
  (void)green;
  (void)priority;
  return ((Create)real("cuStreamCreate"))(stream, flags);
}

int cuGreenCtxDestroy(struct Green* green) {
  int result = ((int (*)(int))real("cuDevicePrimaryCtxRelease_v2"))(green->device);
  free(green);
  return result;
}
