/* SPDX-License-Identifier: Apache-2.0 */
/* The access summary of one kernel, as the analysis writes it and the shim
 * evaluates it. One relocatable blob:
 *
 *   ts_summary header | ts_node nodes[n_nodes] | ts_access accesses[n_accesses]
 *
 * Nodes form a DAG in topological order: operands have smaller indices. Values
 * are signed 64-bit; an operation that overflows makes its value "unbounded",
 * and so everything computed from it. Everything between the cdef markers is
 * read by cffi as it stands. */
#ifndef TESSERA_ACCESS_SUMMARY_H
#define TESSERA_ACCESS_SUMMARY_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
/* cdef begin */
enum {
  TS_SUMMARY_MAGIC = 0x4d535354, /* "TSSM" */
  TS_SUMMARY_VERSION = 2,
  TS_NO_NODE = 0x7fffffff,
  TS_SUMMARY_MAX_NODES = 1024, /* what the evaluator's stack holds; the analysis falls back to UNBOUNDED */
  TS_SUMMARY_MAX_ACCESSES = 512,
  TS_SUMMARY_MAX_LEVELS = 3,
  TS_ARCHITECTURE_MAJORS = 20 /* only_architecture: a major version below, an architecture from here on */
};

/* What a kernel does beside reading and writing what its accesses say. Any bit
 * of TS_KERNEL_HOME_ONLY keeps the kernel at home. */
enum {
  TS_KERNEL_UNKNOWN = 1,               /* some access could not be attributed: it may touch anything */
  TS_KERNEL_PRINTS = 2,                /* vprintf */
  TS_KERNEL_ALLOCATES = 4,             /* device malloc, free */
  TS_KERNEL_ASSERTS = 8,               /* __assertfail; moves, its error is reported like home's */
  TS_KERNEL_LAUNCHES = 16,             /* dynamic parallelism */
  TS_KERNEL_WRITES_GLOBALS = 32,       /* stores to module variables */
  TS_KERNEL_READS_GLOBALS = 64,        /* reads module variables that a host or another kernel could have changed */
  TS_KERNEL_READS_CONSTANT_DATA = 128, /* reads only initialised variables that no kernel of the module writes */
  TS_KERNEL_TEXTURES = 256,            /* textures, surfaces, samplers */
  TS_KERNEL_TENSOR_MAPS = 512,         /* TMA descriptors */
  TS_KERNEL_DEVICE_DEPENDENT = 1024,   /* %clock, %smid, %globaltimer, ...: results differ between devices */
  TS_KERNEL_GRID_SYNC = 2048,          /* cooperative launch */
  TS_KERNEL_INDIRECT_CALLS = 4096,
  TS_KERNEL_ORDER_DEPENDENT = 8192, /* floating-point atomics: results may differ between runs even at home */
  TS_KERNEL_SYSTEM_SCOPE = 16384,   /* .sys atomics or fences with volatile polling: talks to the host or to peers */
  TS_KERNEL_CLUSTERS = 32768,       /* distributed shared memory */
  TS_KERNEL_HOME_ONLY = 0x5f77      /* all but ASSERTS, READS_CONSTANT_DATA, ORDER_DEPENDENT, CLUSTERS */
};

enum { /* ts_access.mode, bits */
       TS_ACCESS_READ = 1,
       TS_ACCESS_WRITE = 2 /* an atomic is both */
};

enum {                          /* ts_access.flags, bits */
       TS_ACCESS_UNBOUNDED = 1, /* extent not known: the whole allocation that the pointer lies in */
       TS_ACCESS_EXACT = 2,     /* every byte of [lo, hi) is touched whenever the guard holds */
       TS_ACCESS_INDIRECT = 4,  /* the offset depends on data loaded from memory (gather, scatter); the base does not */
       TS_ACCESS_MUST_WRITE = 8, /* a write access that surely stores every byte of [lo, hi) */
       TS_ACCESS_MAYBE = 16,     /* one of many words that may be the pointer: nothing, where it points to no memory */
       TS_ACCESS_ANYTHING = 32   /* UNBOUNDED: a launch for which the guard holds may touch anything */
};

enum {                      /* ts_node.op */
       TS_OP_CONST = 0,     /* value */
       TS_OP_PARAMETER = 1, /* a = byte offset, b = width in bytes (1, 2, 4, 8), c = 1 when signed */
       TS_OP_GRID = 2,      /* a = 0, 1, 2: blocks in x, y, z */
       TS_OP_BLOCK = 3,     /* a = 0, 1, 2: threads per block in x, y, z */
       TS_OP_CLUSTER = 4,   /* a = 0, 1, 2: blocks per cluster */
       TS_OP_DYNAMIC_SHARED = 5,
       TS_OP_ADD = 10,
       TS_OP_SUB = 11,
       TS_OP_MUL = 12,
       TS_OP_FLOOR_DIV = 13, /* by zero: unbounded */
       TS_OP_FLOOR_MOD = 14,
       TS_OP_MIN = 15,
       TS_OP_MAX = 16,
       TS_OP_NEG = 17,
       TS_OP_SHL = 18, /* count outside 0..62: unbounded */
       TS_OP_SHR = 19, /* arithmetic; count clamped to 63 */
       TS_OP_AND = 20,
       TS_OP_OR = 21,
       TS_OP_XOR = 22,
       TS_OP_LESS = 23,
       TS_OP_LESS_EQUAL = 24,
       TS_OP_EQUAL = 25,
       TS_OP_NOT_EQUAL = 26, /* 1 or 0 */
       TS_OP_NOT = 27,       /* a == 0 */
       TS_OP_SELECT = 28,    /* a ? b : c; only the chosen side need be bounded */
       TS_OP_WRAP = 29,      /* a reduced to b bits (8, 16, 32), c = 1: sign-extended, 0: zero-extended */
       TS_OP_TRUNC_DIV = 30,
       TS_OP_TRUNC_MOD = 31,
       TS_OP_BOUNDED = 32,        /* 1 when a is bounded, 0 when it is not; never unbounded itself */
       TS_OP_AND_LESS_EQUAL = 33, /* a & (b <= c) */
       TS_OP_ADD_MUL = 34,        /* a + b * c */
       TS_OP_AND3 = 35,
       TS_OP_ADD3 = 36, /* a + (b + c) */
       TS_OP_MIN3 = 37
};

typedef struct {
  int32_t op, a, b, c; /* a, b, c: node indices unless the op says otherwise */
  int64_t value;
} ts_node;

/* The bytes [lo, hi) of one row, and of its copies: with levels, a row begins at
 * every lo + i * pitch[0] + j * pitch[1] + k * pitch[2] where 0 <= i < count[0] and so
 * on. A count that is not positive makes the access empty. */
typedef struct {
  uint8_t mode, flags, n_levels, reserved;
  uint32_t parameter_offset; /* of the 64-bit pointer word in the parameter block */
  int32_t guard;             /* node; 0: this launch does not make the access. TS_NO_NODE: it may */
  int32_t lo, hi;            /* nodes: bytes relative to the pointer's value; TS_NO_NODE with UNBOUNDED */
  uint32_t line;             /* PTX line of a representative instruction, for `tessera-ctl show` */
  int32_t pitch[TS_SUMMARY_MAX_LEVELS], count[TS_SUMMARY_MAX_LEVELS]; /* nodes; TS_NO_NODE from n_levels on */
} ts_access;

typedef struct {
  uint32_t magic, version;
  uint32_t size;       /* of the whole blob, bytes */
  uint32_t properties; /* TS_KERNEL_* */
  uint32_t n_nodes, n_accesses;
  uint32_t parameter_block_size;
  uint32_t minimum_architecture; /* 80 for sm_80 */
  uint32_t only_architecture;    /* sm_90a: 90; 8: newer ones of 8.x (machine code); 0: that and every newer one */
  uint32_t required_block;       /* .reqntid: x | y << 11 | z << 22; 0: none. Other launches are errors */
} ts_summary;

/* One launch, as the evaluator needs it. */
typedef struct {
  const uint8_t* parameters;
  uint32_t parameter_size;
  uint32_t grid[3], block[3], cluster[3];
  uint32_t dynamic_shared;
} ts_launch_shape;

/* Bytes that a launch may touch. Without levels [begin, end) says it all. With levels it
 * is the hull of a set of rows of `width` bytes, the first at `begin`, the others at
 * begin + i * pitch[0] + j * pitch[1] + k * pitch[2], i < count[0] and so on; pitches
 * ascend, and each is wider than a row. EXACT and MUST_WRITE of such a set stand in
 * row_flags and hold for its rows: who looks at the hull alone finds nothing promised. */
typedef struct {
  uint64_t pointer;            /* value of the pointer word */
  uint64_t begin, end;         /* absolute, half-open; begin == end == pointer when unbounded */
  uint8_t mode, flags;         /* as in ts_access; UNBOUNDED may have been added by an overflow */
  uint8_t n_levels, row_flags; /* row_flags: TS_ACCESS_EXACT, TS_ACCESS_MUST_WRITE */
  uint32_t access;             /* which access of the summary it is */
  uint64_t width;              /* of a row, bytes; defined with levels only, as pitch and count */
  uint64_t pitch[TS_SUMMARY_MAX_LEVELS], count[TS_SUMMARY_MAX_LEVELS];
} ts_range;

enum { /* ts_summary_validate and ts_summary_evaluate */
       TS_EVALUATE_OK = 0,
       TS_EVALUATE_MALFORMED = 1,  /* not a summary of this version, or its indices do not hold together */
       TS_EVALUATE_PARAMETERS = 2, /* the parameter block is shorter than the summary needs */
       TS_EVALUATE_CAPACITY = 3    /* more ranges than `capacity` */
};

/* Checks a blob once, before it is trusted: sizes, limits, indices, order. The
 * blob must be aligned to 8 bytes. */
int ts_summary_validate(const void* blob, size_t size);

/* Evaluates a validated summary. Writes at most one range per access whose guard
 * may hold, merging nothing; an access whose range is empty (lo >= hi) is left
 * out. EXACT and MUST_WRITE are dropped where the guard or the range turned out
 * unbounded. No allocation, no system call, no lock; about 9 KiB of stack. */
int ts_summary_evaluate(const void* blob, const ts_launch_shape* launch, ts_range* ranges, uint32_t capacity,
                        uint32_t* n_ranges);

/* What launches of one kernel evaluated to, by all but the values of its pointers: grid,
 * block, cluster, dynamic shared memory, and the scalar parameters that the summary looks
 * at. One thread at a time may use a memo; a summary with many scalars, or a launch with
 * many ranges, is evaluated as if there were none. */
enum { TS_MEMO_WORDS = 1024 };
typedef struct {
  uint64_t words[TS_MEMO_WORDS];
} ts_memo;

/* Prepares a memo for a validated blob, or for another one than before. */
void ts_summary_memo_prepare(ts_memo* memo, const void* blob);

/* As ts_summary_evaluate, for the blob that the memo was prepared for. */
int ts_summary_evaluate_memo(const void* blob, ts_memo* memo, const ts_launch_shape* launch, ts_range* ranges,
                             uint32_t capacity, uint32_t* n_ranges);
/* cdef end */
#ifdef __cplusplus
}
#endif
#endif
