/* SPDX-License-Identifier: Apache-2.0 */
/* A driver that lists devices, for tests of the control plane. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef struct {
  char bytes[16];
} CUuuid;

int cuInit(unsigned flags) { return (int)flags * 0; }
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuGetErrorName(int error, const char** text) { return *text = "CUDA_ERROR_FAKE", error * 0; }
int cuDeviceGetCount(int* count) { return *count = DEVICES, 0; }
int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
int cuDeviceGetName(char* name, int size, int device) {
  static const char* const names[] = {"NVIDIA A100", "NVIDIA L40S", "NVIDIA H100 PCIe", "NVIDIA L40S"};
  return snprintf(name, (size_t)size, "%s", names[device % 4]), 0;
}
int cuDeviceGetUuid_v2(CUuuid* uuid, int device) {
  memset(uuid, 0, sizeof *uuid);
  uuid->bytes[15] = (char)(device + 1);
  return 0;
}
int cuDeviceTotalMem_v2(size_t* bytes, int device) { return *bytes = (size_t)(device + 1) << 30, 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  static const int capabilities[] = {80, 89, 90, 89};
  const int capability = capabilities[device % 4];
  *value = attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : 1;
  return 0;
}
