// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "tasks.h"

namespace tessera::sim {

/// The parameter block from kernelParams or extra; fails with the launch's error.
std::vector<uint8_t> launch_parameters(const KernelInfo& info, void** parameters, void** extra);

/// A checked launch of a CUfunction or CUkernel in `context`.
std::shared_ptr<KernelTask> make_kernel_task(CUfunction handle, Context& context, LaunchShape shape, void** parameters,
                                             void** extra);

/// Takes one launch attribute into account. Fails where it can be neither honoured nor rightly ignored.
void apply_attribute(const CUlaunchAttribute& attribute, LaunchShape& shape);

}  // namespace tessera::sim
