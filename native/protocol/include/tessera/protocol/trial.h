/* SPDX-License-Identifier: Apache-2.0 */
/* Between a program and a trial process: one that runs single launches with
 * nothing mapped but what a summary claims.
 *
 * The program connects to a worker's socket and sends TS_TRIAL in place of
 * TS_ATTACH. The worker hands the connection to a new process on its device,
 * which answers TS_TRIAL_READY and serves it until either hangs up. A launch
 * that breaks the device's context is that process's last one; the worker never
 * hears of it. TS_IMAGE and TS_FUNCTION are those of channel.h, their sequence
 * numbers are ignored.
 *
 * The memory of a TS_TRIAL_RUN: a TS_RING_LAUNCH message at its start, in which
 * TS_RANGE_PULL marks what the launch may read, the other ranges what else is to
 * be mapped; at TS_TRIAL_DATA the content of each granule that the ranges touch,
 * in ascending order, before the launch; behind those, as many for the content
 * after it, which the trial process fills in. */
#ifndef TESSERA_PROTOCOL_TRIAL_H
#define TESSERA_PROTOCOL_TRIAL_H
#include "tessera/protocol/channel.h"
#ifdef __cplusplus
extern "C" {
#endif

enum {
  TS_TRIAL = 40,       /* ts_message */
  TS_TRIAL_READY = 41, /* ts_trial_ready */
  TS_TRIAL_RUN = 42,   /* ts_trial_run; fd: memory as above */
  TS_TRIAL_DONE = 43   /* ts_trial_done, the answer */
};
enum { TS_TRIAL_DATA = 1048576 };

typedef struct {
  ts_message header;
  int32_t status; /* CUresult; not 0: text says why, and the process ends */
  uint32_t reserved;
  ts_device device;
  char text[256];
} ts_trial_ready;

typedef struct {
  ts_message header;
  uint64_t arena_base, arena_size;
  uint64_t size;       /* bytes of the memory */
  uint32_t poison;     /* every byte that is mapped and not to be read begins as this one */
  uint32_t timeout_ms; /* of the kernel */
} ts_trial_run;

enum {                      /* ts_trial_done.outcome */
       TS_TRIAL_RAN = 0,    /* the content after it is there */
       TS_TRIAL_CANNOT = 1, /* it could not be launched: nothing is known */
       TS_TRIAL_FAULT = 2,  /* the kernel failed; the process ends */
       TS_TRIAL_ENDLESS = 3 /* it did not end in time; the process ends */
};

typedef struct {
  ts_message header;
  uint32_t outcome;
  int32_t status; /* CUresult */
  char text[240];
} ts_trial_done;

#ifdef __cplusplus
}
#endif
#endif
