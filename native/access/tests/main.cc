// SPDX-License-Identifier: Apache-2.0
#include "testing/check.h"
TEST_MAIN()
