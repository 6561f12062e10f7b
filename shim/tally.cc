// SPDX-License-Identifier: Apache-2.0
#include "tally.h"

#include "session.h"

namespace tessera::shim {

void Tally::count_untracked() { count_untracked_launch(); }

}  // namespace tessera::shim
