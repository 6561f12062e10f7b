/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between a program (the shim inside it) and the controller, and the
 * tables that they share.
 *
 * Transport: a Unix SOCK_SEQPACKET socket, `controller.sock` in the runtime
 * folder, one message a packet, file descriptors by SCM_RIGHTS. All integers in
 * the host's byte order: both ends are on one machine. The first packet of a
 * connection is TS_HELLO; anything else, or another version, is answered with
 * TS_REFUSED, which names both versions, and the connection is closed.
 * Everything between the cdef markers is read by cffi as it stands. */
#ifndef TESSERA_PROTOCOL_CONTROL_H
#define TESSERA_PROTOCOL_CONTROL_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
/* cdef begin */
enum {
  TS_CONTROL_MAGIC = 0x4d435354, /* "TSCM" */
  TS_PROTOCOL_VERSION = 1,
  TS_MAX_MESSAGE = 196608, /* bytes of one packet */
  TS_MAX_DEVICES = 16,     /* home devices of a program; workers of a controller */
  TS_MAX_KERNELS = 65536,  /* kernel ids; later kernels stay home */
  TS_NAME_BYTES = 64,
  TS_PATH_BYTES = 108,
  TS_PROGRAM_BYTES = 256
};

enum {                     /* ts_message.type */
       TS_HELLO = 1,       /* program -> controller: ts_hello; fd: counters table */
       TS_WELCOME = 2,     /* controller -> program: ts_welcome; fd: placement table */
       TS_REFUSED = 3,     /* controller -> program: ts_refused */
       TS_KERNEL = 4,      /* program -> controller: ts_kernel_query; fd: image, when HAS_IMAGE */
       TS_KERNEL_INFO = 5, /* controller -> program: ts_kernel_info */
       TS_WORKERS = 6,     /* controller -> program, unasked: ts_workers (some came or went) */
       TS_STATUS = 7,      /* tessera-ctl -> controller and back: JSON text after the header */
       TS_WORKER_LOST = 8, /* program -> controller: ts_worker_lost */
       TS_TRIED = 9,       /* program -> controller: ts_tried, what a trial of a launch showed */
       TS_ALL_HOME = 10,   /* program -> controller: ts_all_home, from now on none of its kernels moves */
       TS_RECORD = 11,     /* controller -> program, unasked: ts_record, tell the order of your next launches */
       TS_RECORDED = 12,   /* program -> controller: ts_recorded, one or more of them */
       TS_CLASS = 13       /* program -> controller: ts_class, whose launches a row of its counters counts */
};

typedef struct {
  uint32_t magic;
  uint16_t version, type;
  uint32_t size;    /* of the whole message */
  uint32_t request; /* echoed in the answer */
} ts_message;

typedef struct {
  uint8_t uuid[16];
  uint32_t compute_capability; /* major * 10 + minor */
  uint32_t reserved;
  uint64_t memory_bytes;
  char name[64];
} ts_device;

typedef struct {
  ts_message header;
  int32_t pid;
  uint32_t n_devices; /* home devices, in the program's own numbering */
  ts_device devices[16];
  char program[256]; /* command line, cut to fit */
  char build[64];    /* Tessera's version */
} ts_hello;

typedef struct {
  uint32_t index; /* 1..15: the value in the placement table */
  uint32_t state; /* 1: up */
  ts_device device;
  char socket[108]; /* where the worker listens */
  uint32_t reserved;
} ts_worker_info;

typedef struct {
  ts_message header;
  uint64_t arena_base, arena_size; /* this program's slot of addresses */
  uint32_t slot, n_workers;
  ts_worker_info workers[16];
} ts_welcome;

typedef struct {
  ts_message header;
  uint32_t n_workers, reserved;
  ts_worker_info workers[16];
} ts_workers;

typedef struct {
  ts_message header;
  char reason[512];
} ts_refused;

typedef struct {
  uint64_t low, high; /* XXH3, 128 bits, of the image bytes */
} ts_image_hash;

enum { /* ts_kernel_query.flags */
       TS_KERNEL_HAS_IMAGE = 1,
       TS_KERNEL_WANTS_PASSED = 2 /* behind the answer's text: the launch classes of an unknown kernel that passed
                                     trials, 8 bytes each, up to the packet's end */
};

typedef struct {
  ts_message header;
  ts_image_hash image;
  uint64_t image_size;
  uint32_t flags;
  uint32_t name_size; /* bytes of the name that follows, without a NUL */
  uint32_t path_size; /* bytes of the file name that follows it; 0 when the image did not come from a file */
  uint32_t reserved;
} ts_kernel_query;

enum { /* ts_kernel_info.status */
       TS_KERNEL_READY = 0,
       TS_KERNEL_NEED_IMAGE = 1, /* ask again with the image */
       TS_KERNEL_PENDING = 2,    /* analysis goes on; ask again later */
       TS_KERNEL_FAILED = 3      /* no summary to be had: the kernel stays home; reason says why */
};

typedef struct {
  ts_message header;
  uint32_t status;
  uint32_t kernel_id;    /* index into both tables; TS_MAX_KERNELS: none was left */
  uint32_t summary_size; /* bytes of the ts_summary blob that follows */
  uint32_t reason_size;  /* bytes of text that follow the blob */
} ts_kernel_info;

typedef struct {
  ts_message header;
  uint32_t index, reserved;
  char reason[256];
} ts_worker_lost;

typedef struct {
  ts_message header;
  char reason[256];
} ts_all_home;

enum {                                   /* ts_tried.verdict */
       TS_VERDICT_PASSED = 1,            /* what was claimed was enough */
       TS_VERDICT_WRONG = 2,             /* it was not */
       TS_VERDICT_NOT_DETERMINISTIC = 3, /* results differ at home as well */
       TS_VERDICT_UNDECIDED = 4,         /* something else came between */
       TS_VERDICT_NOT_TRIED = 5
};
enum {
  TS_TRIED_WORDS = 1
}; /* ts_tried.flags: the claims were not a summary's, but every pointer among the arguments */

typedef struct {
  ts_message header;
  ts_image_hash image;
  uint64_t launch_class; /* hash of shape and argument pattern; 0: of no launch in particular */
  uint32_t verdict, flags;
  uint32_t grid[3], block[3];
  uint32_t dynamic_shared;
  uint32_t name_size;   /* bytes of the kernel's name that follows, without a NUL */
  uint32_t reason_size; /* bytes of text that follow the name */
  uint32_t reserved;
} ts_tried;

typedef struct {
  ts_message header;
  uint32_t launches; /* to record; fewer when ten seconds bring forth no more */
  uint32_t reserved;
} ts_record;

typedef struct {
  uint64_t begin, end;
} ts_recorded_range;

enum {                          /* ts_recorded_launch.flags */
       TS_RECORDED_UNKNOWN = 1, /* it may touch anything */
       TS_RECORDED_IN_ROW = 2   /* counter_slot is the row that counts it */
};

typedef struct {
  uint32_t kernel_id, flags;
  uint64_t stream; /* the program's handle */
  uint16_t n_reads, n_writes;
  uint32_t counter_slot;
  /* follow: ts_recorded_range[n_reads + n_writes], reads first */
} ts_recorded_launch;

typedef struct { /* launches in the order in which the program made them */
  ts_message header;
  uint32_t n_launches; /* behind this; each ts_recorded_launch with its ranges */
  uint32_t last;       /* 1: the recording is complete with this one */
} ts_recorded;

/* What tells launches of one kernel apart: numbers, compared without a sign. */
enum {                /* ts_term.quantity, ts_class_value.quantity */
       TS_GRID_X = 0, /* blocks */
       TS_GRID_Y = 1,
       TS_GRID_Z = 2,
       TS_BLOCK_X = 3, /* threads of a block */
       TS_BLOCK_Y = 4,
       TS_BLOCK_Z = 5,
       TS_SHARED = 6,  /* bytes of dynamic shared memory */
       TS_BLOCKS = 7,  /* of the whole grid */
       TS_THREADS = 8, /* of a block */
       TS_CALL_M = 9,  /* of a library's call, instead of all those before */
       TS_CALL_N = 10,
       TS_CALL_K = 11,
       TS_CALL_BATCHES = 12,
       TS_ARGUMENT = 16, /* and on: the first argument, the second; of 1, 2, 4 or 8 bytes, else it is none */
       TS_QUANTITIES = 64
};

typedef struct {
  uint32_t quantity, reserved;
  uint64_t value;
} ts_class_value;

/* A launch class that has a row of the counters to itself. The row's kernel_id is the kernel's. */
enum { TS_CLASS_VALUES = 12 };
typedef struct {
  ts_message header;
  uint32_t counter_slot, kernel_id;
  uint32_t n_values, reserved;
  ts_class_value values[12];
} ts_class;

/* The placement table: written by the controller, read by every program. A kernel whose entry has TS_PLACED_BY_CLASS
 * has choices, in a row; the first of them that a launch fits decides, and where none does, the rest of the entry. */
enum {
  TS_PLACEMENT_MAGIC = 0x50505354,
  TS_DEVICE_HOME = 0,
  TS_PLACED_BY_CLASS = 128,
  TS_MAX_CHOICES = 4096,
  TS_MAX_TERMS = 12
};

typedef struct { /* the quantity is there, and from least to most */
  uint32_t quantity, reserved;
  uint64_t least, most;
} ts_term;

typedef struct { /* launches of a kernel for which all terms hold */
  uint32_t kernel_id;
  uint16_t device, n_terms;
  ts_term terms[12];
} ts_choice;

typedef struct {
  uint32_t magic, version;
  uint32_t capacity;   /* entries of device[] */
  uint32_t n_choices;  /* entries of choices[] in use */
  uint64_t generation; /* atomic; raised after each change of device[] or choices[] */
  uint64_t sequence;   /* atomic; raised before a change, to an odd number, and after it: what was read while it stayed
                          the same, and even, belongs together */
  uint64_t padding[4];
  uint8_t device[65536];   /* by kernel id: 0 home, else the index of a worker; and TS_PLACED_BY_CLASS */
  ts_choice choices[4096]; /* in ascending order of their kernels */
} ts_placement_table;

/* The counters table: written by one program (and its workers), read by the
 * controller. Every counter is a relaxed atomic that only grows. */
enum {
  TS_COUNTERS_MAGIC = 0x43435354,
  TS_STAY_PLACED = 0,     /* ran at home because it was placed there */
  TS_STAY_NO_SUMMARY = 1, /* no PTX, analysis failed or pending */
  TS_STAY_UNKNOWN = 2,    /* the summary says unknown */
  TS_STAY_PROPERTY = 3,   /* prints, clocks, mutable globals, ... */
  TS_STAY_MEMORY = 4,     /* an argument lies outside the arena */
  TS_STAY_ATTRIBUTES = 5, /* launch attributes that are not carried over */
  TS_STAY_CAPTURE = 6,    /* the stream is being captured */
  TS_STAY_WORKER = 7,     /* the worker is gone, lacks memory, or cannot load the module */
  TS_STAY_REASONS = 8
};
typedef struct {
  uint32_t kernel_id, used;
  uint64_t launches[16]; /* by device; not of home (0), whose launches `stayed` counts: one counter a launch */
  uint64_t stayed[8];    /* all home launches, by TS_STAY_* */
  uint64_t bytes_in[16]; /* pulled for this kernel, by device */
  uint64_t time_ns[16];  /* device time, by device, over timed[] launches */
  uint64_t timed[16];
} ts_kernel_counters;
typedef struct { /* written by the worker alone */
  uint64_t launches, joins, pulls, bytes_pulled, pushes, bytes_pushed, evictions, bytes_mapped;
} ts_worker_counters;
typedef struct {
  uint32_t magic, version;
  int32_t pid;
  uint32_t capacity;                 /* entries of kernels[] */
  uint32_t n_kernels;                /* entries in use; atomic */
  uint32_t state;                    /* 0 starting, 1 active, 2 passing through, 3 failed */
  uint64_t calls;                    /* driver calls that the shim has handled */
  uint64_t launches_untracked;       /* launches before or without a kernel id */
  uint64_t arena_mapped, arena_used; /* bytes */
  uint64_t graph_launches;
  uint64_t reserved[4];
  ts_worker_counters workers[16];
  ts_kernel_counters kernels[4096];
} ts_counters_table;
/* cdef end */
#ifdef __cplusplus
}
#endif
#endif
