/* SPDX-License-Identifier: Apache-2.0 */
/* A static executable: the loader never runs, and the shim is not there. */
#include <stdio.h>

int main(void) {
  puts("static");
  return 0;
}
