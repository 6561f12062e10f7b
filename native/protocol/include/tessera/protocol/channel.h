/* SPDX-License-Identifier: Apache-2.0 */
/* Between a program (home) and one worker: a control socket for what carries
 * file descriptors, and a shared channel for what must be quick.
 *
 * Socket: the worker listens on a Unix SOCK_SEQPACKET socket (its path is in
 * ts_worker_info). First packet TS_ATTACH with the channel's memfd; the worker
 * answers TS_ATTACHED. Then TS_CHUNK, TS_IMAGE, TS_FUNCTION, each numbered by
 * `sequence`; a ring message names the last sequence that must have been read
 * before it. The worker checks every field: a program that lies loses its
 * session, never the worker.
 *
 * Channel: header page, lanes, ring. A lane is one home stream's pair of flags.
 * Both processes register the lanes with cuMemHostRegister; streams on both
 * sides write and wait on them. Values only grow (cyclic 32-bit compare).
 *
 * Ring: one producer (the program, under its own lock), one consumer (the
 * worker's session thread). Messages are 64-byte aligned; `head` and `tail` are
 * byte counts that never wrap; a message never crosses the end (TS_RING_SKIP
 * fills up). */
#ifndef TESSERA_PROTOCOL_CHANNEL_H
#define TESSERA_PROTOCOL_CHANNEL_H
#include <stddef.h>
#include <stdint.h>

#include "tessera/protocol/control.h"
#ifdef __cplusplus
extern "C" {
#endif
/* cdef begin */
enum {
  TS_CHANNEL_MAGIC = 0x48435354, /* "TSCH" */
  TS_LANES = 512,
  TS_RING_BYTES = 4194304,
  TS_GRANULE = 2097152, /* bytes: mirrored memory is mapped in these */
  TS_MAX_PARAMETERS = 32764
};

/* socket messages, after ts_message */
enum {
  TS_ATTACH = 32,         /* ts_attach; fds: channel, counters table */
  TS_ATTACHED = 33,       /* ts_attached */
  TS_CHUNK = 34,          /* ts_chunk; fd: exported physical memory */
  TS_IMAGE = 35,          /* ts_image; fd: bytes of the module image */
  TS_FUNCTION = 36,       /* ts_function */
  TS_FUNCTION_READY = 37, /* ts_function_ready, the answer to TS_FUNCTION */
  TS_ROOM = 38,           /* ts_room */
  TS_ROOM_GRANTED = 39,   /* ts_room, the answer to TS_ROOM */
  TS_LIBRARY = 40,        /* ts_library; answered by TS_FUNCTION_READY */
  TS_OBSERVE = 38,        /* controller -> worker, instead of ATTACH: ts_message */
  TS_OBSERVED = 39        /* worker -> controller: ts_message; fd: ts_worker_status */
};

typedef struct {
  ts_message header;
  uint64_t arena_base, arena_size;
  int32_t pid;
  uint32_t index; /* the worker's index in this controller */
} ts_attach;

typedef struct {
  ts_message header;
  int32_t status; /* CUresult; not 0: text says why, and the session ends */
  uint32_t reserved;
  uint64_t memory_budget; /* bytes of mirrored memory, shared by all programs */
  ts_device device;
  char text[256];
} ts_attached;

typedef struct { /* home mapped `size` bytes of physical memory at `address` */
  ts_message header;
  uint64_t sequence, address, size;
} ts_chunk;

typedef struct {
  ts_message header;
  uint64_t sequence;
  ts_image_hash hash;
  uint64_t size;
} ts_image;

typedef struct {
  ts_message header;
  uint64_t sequence;
  uint32_t function;  /* chosen by the program, dense from 0 */
  uint32_t name_size; /* bytes of the kernel name that follows, without a NUL */
  ts_image_hash image;
  uint32_t parameter_size;
  int32_t max_dynamic_shared; /* cuFuncSetAttribute; -1: not set */
  int32_t shared_carveout;    /* likewise */
  uint32_t reserved;
} ts_function;

typedef struct { /* a function that stands for the calls of a host library: see blas_call.h */
  ts_message header;
  uint64_t sequence;
  uint32_t function;         /* as in ts_function, and counted with those */
  uint32_t kind;             /* TS_BLAS_LIBRARY or TS_BLAS_LT_LIBRARY */
  uint32_t path_size;        /* bytes of the library's path that follows, without a NUL */
  uint32_t environment_size; /* bytes of text that follow it: the settings that the library takes from the program's
                                environment, which have to be the worker's */
} ts_library;

typedef struct {
  ts_message header;
  uint32_t function;
  int32_t status; /* CUresult */
  char text[240];
} ts_function_ready;

typedef struct { /* how much mirrored memory a program may hold on the worker in all: asked for, granted */
  ts_message header;
  uint64_t bytes;
} ts_room;

/* ring messages */
enum {
  TS_RING_SKIP = 0,
  TS_RING_LAUNCH = 1,
  TS_RING_JOIN = 2,    /* push ranges home, then write `value` to the lane's done flag */
  TS_RING_RELEASE = 3, /* the program unmapped these chunks: drop alias and mirror */
  TS_RING_EVICT = 4,   /* unmap the mirror of these granules: nothing dirty lies there */
  TS_RING_CLOSE_LANE = 5,
  TS_RING_COPY = 6,               /* run a copy or fill on the mirror: reserved for later use */
  TS_RING_FUNCTION_ATTRIBUTES = 7 /* reserved for later use */
};

typedef struct {
  uint32_t size; /* of the message with everything behind it; a multiple of 64 */
  uint16_t type, flags;
  uint32_t lane;
  uint32_t start;    /* not 0: the lane's stream first waits until its start flag reaches this */
  uint64_t sequence; /* socket messages up to this one must have been read */
  uint32_t n_ranges;
  uint32_t value; /* JOIN: the done value */
} ts_ring_header;

enum { TS_RANGE_PULL = 1 }; /* copy from home; without it: just be mapped */

typedef struct {
  uint64_t begin, end;
  uint64_t flags;
} ts_ring_range;

typedef struct {
  ts_ring_header header;
  uint32_t function, counter_slot;
  uint32_t grid[3], block[3];
  uint32_t dynamic_shared;
  uint32_t parameter_size;
  uint32_t n_attributes; /* CUlaunchAttribute, 8-byte aligned, raw */
  uint32_t reserved;
  /* follow: ts_ring_range[n_ranges], CUlaunchAttribute[n_attributes], parameters */
} ts_ring_launch;

typedef struct {
  uint32_t start, done; /* the flags */
  uint32_t requested;   /* last done value that the program asked for */
  uint32_t reserved[13];
} ts_lane;

typedef struct {
  uint32_t magic, version;
  uint32_t ring_bytes, n_lanes;
  uint64_t head; /* atomic; producer */
  uint64_t padding0[7];
  uint64_t tail; /* atomic; consumer */
  uint64_t padding1[7];
  uint32_t sleeping; /* atomic, futex: 1 while the consumer sleeps */
  uint32_t closed;   /* atomic: the program is leaving */
  int32_t error;     /* atomic: first CUresult that failed on the worker; sticky */
  uint32_t failed;   /* atomic: set after error and text */
  char error_text[240];
} ts_channel_header;

typedef struct { /* header page, lanes, ring: each page-aligned */
  ts_channel_header header;
  uint8_t padding[3696]; /* up to 4096 */
  ts_lane lanes[512];
  uint8_t ring[4194304];
} ts_channel;

typedef struct { /* one page, shared with controller and programs */
  uint32_t magic, version;
  int32_t pid;
  uint32_t state; /* 1 serving, 2 failed */
  ts_device device;
  uint64_t memory_budget;
  uint64_t memory_used; /* atomic: mirrored bytes of all programs */
  uint64_t sessions, launches, busy_ns, bytes_pulled, bytes_pushed, errors;
  char error_text[240];
} ts_worker_status;
/* cdef end */
#ifdef __cplusplus
}
#include <cstddef>
static_assert(offsetof(ts_channel, lanes) == 4096, "lanes start on their own page");
static_assert(sizeof(ts_lane) == 64, "one lane per cache line");
static_assert(offsetof(ts_channel, ring) % 4096 == 0, "the ring is page-aligned");
#endif
#endif
