// SPDX-License-Identifier: Apache-2.0
#include "architecture.h"

#include "testing/check.h"

using tessera::shim::architecture_runs_on;

TEST_CASE(ptx_runs_on_everything_newer) {
  CHECK(architecture_runs_on(75, 0, 75));
  CHECK(architecture_runs_on(75, 0, 120));
  CHECK(!architecture_runs_on(80, 0, 75));
}

TEST_CASE(machine_code_runs_within_its_major_version) {
  CHECK(architecture_runs_on(80, 8, 80));
  CHECK(architecture_runs_on(80, 8, 86));
  CHECK(architecture_runs_on(80, 8, 89));
  CHECK(!architecture_runs_on(86, 8, 80));
  CHECK(!architecture_runs_on(80, 8, 90));
  CHECK(!architecture_runs_on(75, 7, 80));
  CHECK(architecture_runs_on(100, 10, 103));
  CHECK(!architecture_runs_on(100, 10, 120));
  CHECK(architecture_runs_on(120, 12, 121));
}

TEST_CASE(machine_code_does_not_reach_embedded_boards) {
  CHECK(!architecture_runs_on(80, 8, 87));
  CHECK(!architecture_runs_on(100, 10, 101));
  CHECK(architecture_runs_on(87, 87, 87));
  CHECK(!architecture_runs_on(87, 87, 89));
}

TEST_CASE(code_of_one_architecture_runs_there_alone) {
  CHECK(architecture_runs_on(90, 90, 90));
  CHECK(!architecture_runs_on(100, 100, 103));
  CHECK(!architecture_runs_on(90, 90, 100));
}

TEST_MAIN()
